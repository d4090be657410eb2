/**
 * The payload that changes the rules of some owners. It contains only what changed: it rewrites a service port's own
 * chains, and deletes and inserts its entries in shared chains one by one, where upstream rewrites the shared chains of
 * the whole cluster. Reference iptables-operation.md §9.3.
 */
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import { chainLines, deletionLines } from "../../../kernel/iptables/rule-text.ts";
import { declaredChains, lineCount, NO_RULES, type OwnerRules, type SpelledRules } from "./owner-rules.ts";
import { PartList, type Payload, type Transaction } from "./payload.ts";

/** One owner's change from installed to wanted rules; absent means none. */
export interface OwnerChange {
  readonly owner: string;
  readonly before?: OwnerRules | undefined;
  readonly after?: SpelledRules | undefined;
}

/** An owner's own chains that a change removes. */
export function droppedChains({ before, after }: OwnerChange): readonly ChainName[] {
  const kept = new Set(declaredChains(after?.ownChains ?? ""));
  return declaredChains(before?.ownChains ?? "").filter((chain) => !kept.has(chain));
}

/**
 * Builds the payload. New entries go to the head of shared chains, so that the jump to the node ports stays last. A
 * table without changes has no transaction.
 *
 * @param ownersPerTransaction for nat, as `portsPerTransaction` in `full-payload.ts`; each owner changes at once. @default all
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

/** Entries must keep their order, so if one changes, all of the table's entries are replaced. */
function entryLines(before: string, after: string): string {
  if (before === after) return "";
  const inserted = after.replaceAll(/^-A/gm, "-I").split(/(?<=\n)/);
  return before.replaceAll(/^-A/gm, "-D") + inserted.toReversed().join("");
}
