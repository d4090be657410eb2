/**
 * The payload that takes some owners from the rules that they have to others. It touches only what changed: a service
 * port's own chains are rewritten, and its entries in shared chains are deleted and inserted by themselves, where upstream
 * rewrites the shared chains of the whole cluster. Reference iptables-operation.md §9.3. Pure.
 */
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import { chainLines, deletionLines } from "../../../kernel/iptables/rule-text.ts";
import { declaredChains, lineCount, NO_RULES, type OwnerRules, type SpelledRules } from "./owner-rules.ts";
import { PartList, type Payload, type Transaction } from "./payload.ts";

/** One owner's change from what is installed to what is wanted; absent means nothing. */
export interface OwnerChange {
  readonly owner: string;
  readonly before?: OwnerRules | undefined;
  readonly after?: SpelledRules | undefined;
}

/** Own chains that an owner has before a change and not after it. */
export function droppedChains({ before, after }: OwnerChange): readonly ChainName[] {
  const kept = new Set(declaredChains(after?.ownChains ?? ""));
  return declaredChains(before?.ownChains ?? "").filter((chain) => !kept.has(chain));
}

/**
 * Builds the payload. New entries of shared chains go to the head, so the jump to the node ports stays last. A table without
 * changes is left out; no transaction means no work.
 *
 * @param ownersPerTransaction of nat: each still changes at once. As `portsPerTransaction` of `full-payload.ts`. @default all in one
 */
export function deltaPayload(
  changes: readonly OwnerChange[],
  ownersPerTransaction = Number.POSITIVE_INFINITY,
): Payload {
  const filter = new PartList();
  const written = { filter: 0, nat: 0 };
  const transactions: Transaction[] = [{ table: "filter", parts: filter.parts }];
  for (let first = 0; first < changes.length; first += ownersPerTransaction) {
    const chains = new PartList();
    const nat = new PartList();
    for (const change of changes.slice(first, first + ownersPerTransaction)) {
      const { owner, before = NO_RULES, after = NO_RULES } = change;
      filter.add(owner, entryLines(before.filter, after.filter));
      if (before.filter !== after.filter) written.filter += lineCount(after.filter);
      const dropped = droppedChains(change);
      chains.add(owner, after.ownChains + chainLines(dropped));
      nat.add(owner, entryLines(before.nat, after.nat) + after.ownRules + deletionLines(dropped));
      if (before.nat !== after.nat) written.nat += lineCount(after.nat);
      written.nat += after.ownRuleCount;
    }
    transactions.push({ table: "nat", parts: [...chains.parts, ...nat.parts] });
  }
  return { transactions: transactions.filter(({ parts }) => parts.length > 0), written };
}

/** Entries keep their order, so that all of a table change when one does. */
function entryLines(before: string, after: string): string {
  if (before === after) return "";
  const inserted = after.replaceAll(/^-A/gm, "-I").split(/(?<=\n)/);
  return before.replaceAll(/^-A/gm, "-D") + inserted.toReversed().join("");
}
