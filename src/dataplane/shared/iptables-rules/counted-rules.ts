/** Rules in shared chains, where those of most service ports only need to be counted. Pure. */
import type { OtherPort } from "../../../inspect/other-ports.ts";
import type { Rule } from "../../../kernel/iptables/rule.ts";
import type { ServiceTable, SharedRule } from "./rules-plan.ts";
import type { UnplannedRules } from "./saved-form.ts";

/** Something in a chain of a table. */
export interface InTable<R> {
  readonly table: ServiceTable;
  readonly rule: R;
}

/**
 * The shared rules of all service ports in the order of their keys.
 *
 * @param planned by key.
 * @param others have as many rules in each chain as the planned ones that they are like.
 */
export function withCounts(
  planned: ReadonlyMap<string, readonly SharedRule[]>,
  others: readonly OtherPort[],
): (readonly InTable<Rule | UnplannedRules>[])[] {
  const countsOf = new Map<string, readonly InTable<UnplannedRules>[]>();
  const found = new Map<string, readonly InTable<Rule | UnplannedRules>[]>(planned);
  for (const { key, like } of others) {
    let counts = countsOf.get(like);
    if (counts === undefined) {
      counts = countsIn(planned.get(like) ?? []);
      countsOf.set(like, counts);
    }
    found.set(key, counts);
  }
  return [...found.keys()].sort().map((key) => found.get(key) ?? []);
}

/** The number of rules in each chain. */
export function countsIn(rules: readonly SharedRule[]): InTable<UnplannedRules>[] {
  const counts = new Map<string, { readonly table: ServiceTable; readonly chain: string; count: number }>();
  for (const { table, rule } of rules) {
    const known = counts.get(`${table} ${rule.chain}`);
    if (known === undefined) counts.set(`${table} ${rule.chain}`, { table, chain: rule.chain, count: 1 });
    else known.count += 1;
  }
  return Array.from(counts.values(), ({ table, chain, count }) => ({ table, rule: { chain, count } }));
}
