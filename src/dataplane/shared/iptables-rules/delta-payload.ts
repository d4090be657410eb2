/**
 * The payload that takes some owners from the rules that they have to others. It touches only what changed: a service
 * port's own chains are rewritten, and its entries in shared chains are deleted and inserted by themselves, where upstream
 * rewrites the shared chains of the whole cluster. Reference iptables-operation.md §9.3. Pure.
 */
import { type ChainName, equalRules, type PrintedRule, type Rule } from "../../../kernel/iptables/rule.ts";
import { equalLists } from "../../../model/equal-lists.ts";
import { type InstalledRule, inTable } from "./installed-rules.ts";
import { PartList, type Payload, type Transaction } from "./payload.ts";
import { chainLines, deletionLines, ruleLines } from "./restore-lines.ts";
import type { ServiceTable } from "./rules-plan.ts";

/** One owner's step from what is installed to what is wanted; absent means nothing. */
export interface OwnerStep {
  readonly owner: string;
  readonly before?: StepRules | undefined;
  readonly after?: (StepRules & { readonly ownRules: readonly Rule[] }) | undefined;
}

/** The side of a step. */
interface StepRules {
  readonly shared: readonly InstalledRule[];
  /** Those that only the side before has are deleted. */
  readonly ownChains: readonly ChainName[];
}

/** What becomes of an owner's entries in the shared chains of one table. */
interface SharedDifference {
  readonly deleted: readonly (Rule | PrintedRule)[];
  readonly inserted: readonly (Rule | PrintedRule)[];
}

/** Entries keep their order, so that all of a table change when one does. */
function sharedDifference(
  before: readonly InstalledRule[],
  after: readonly InstalledRule[],
  table: ServiceTable,
): SharedDifference {
  const deleted = inTable(before, table);
  const inserted = inTable(after, table);
  return equalLists(deleted, inserted, equalRules) ? { deleted: [], inserted: [] } : { deleted, inserted };
}

/** Own chains that an owner has before a step and not after it. */
export function droppedChains({ before, after }: OwnerStep): readonly ChainName[] {
  const kept = new Set(after?.ownChains);
  return before?.ownChains.filter((chain) => !kept.has(chain)) ?? [];
}

/**
 * Builds the payload. New entries of shared chains go to the head, so the jump to the node ports stays last. A table without
 * changes is left out; no transaction means no work. Throws a RangeError for names that cannot be written into a rule.
 */
export function deltaPayload(steps: readonly OwnerStep[]): Payload {
  const filter = new PartList();
  const chains = new PartList();
  const nat = new PartList();
  const written = { filter: 0, nat: 0 };
  for (const step of steps) {
    const { owner, after } = step;
    // Asked for once: they may be planned whenever they are (planned-rules.ts).
    const [had, has] = [step.before?.shared ?? [], after?.shared ?? []];
    const inFilter = sharedDifference(had, has, "filter");
    filter.add(owner, sharedLines(inFilter));
    const dropped = droppedChains(step);
    chains.add(owner, chainLines([...(after?.ownChains ?? []), ...dropped]));
    const inNat = sharedDifference(had, has, "nat");
    const ownRules = after?.ownRules ?? [];
    nat.add(owner, sharedLines(inNat) + ruleLines("append", ownRules) + deletionLines(dropped));
    written.filter += inFilter.inserted.length;
    written.nat += inNat.inserted.length + ownRules.length;
  }
  const transactions: Transaction[] = [
    { table: "filter", parts: filter.parts },
    { table: "nat", parts: [...chains.parts, ...nat.parts] },
  ];
  return { transactions: transactions.filter(({ parts }) => parts.length > 0), written };
}

function sharedLines({ deleted, inserted }: SharedDifference): string {
  return ruleLines("delete", deleted) + ruleLines("insert", inserted.toReversed());
}
