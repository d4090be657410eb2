/** Rules in shared chains, where those of most service ports only need to be counted. Pure. */
import type { OtherPort } from "../../../inspect/offline-node.ts";
import type { Rule } from "../../../kernel/iptables/rule.ts";
import type { ServiceTable, SharedRule } from "./rules-plan.ts";
import type { UnplannedRules } from "./saved-form.ts";

/** Something in a chain of a table. */
export interface InTable<R> {
  readonly table: ServiceTable;
  readonly rule: R;
}

/**
 * The shared rules of all service ports in the order of their keys. Those that are counted between two others come as one.
 *
 * @param planned by key.
 * @param others have as many rules in each chain as the planned ones that they are like.
 */
export function withCounts(
  planned: ReadonlyMap<string, readonly SharedRule[]>,
  others: readonly OtherPort[],
): (readonly InTable<Rule | UnplannedRules>[])[] {
  const found: (readonly InTable<Rule | UnplannedRules>[])[] = [];
  const between = new CountsBetween((like) => planned.get(like) ?? []);
  const likeOf = new Map(others.map(({ key, like }) => [key, like]));
  for (const key of [...planned.keys(), ...likeOf.keys()].sort()) {
    const like = likeOf.get(key);
    if (like !== undefined) between.add(like);
    else found.push(between.take(), planned.get(key) ?? []);
  }
  found.push(between.take());
  return found;
}

/** Adds up the rules of service ports that follow each other. */
export class CountsBetween {
  readonly #rulesOf: (like: string) => readonly SharedRule[];
  readonly #countsOf = new Map<string, readonly InTable<UnplannedRules>[]>();
  readonly #seen = new Map<string, number>();

  /** @param rulesOf those of a service port that others are like. Asked once for each. */
  constructor(rulesOf: (like: string) => readonly SharedRule[]) {
    this.#rulesOf = rulesOf;
  }

  add(like: string): void {
    this.#seen.set(like, (this.#seen.get(like) ?? 0) + 1);
  }

  /** Of all that were added since the last time. */
  take(): readonly InTable<UnplannedRules>[] {
    const counts: InTable<UnplannedRules>[] = [];
    for (const [like, times] of this.#seen) {
      for (const { table, rule } of this.#countsIn(like)) {
        counts.push({ table, rule: { ...rule, count: rule.count * times } });
      }
    }
    this.#seen.clear();
    return counts;
  }

  #countsIn(like: string): readonly InTable<UnplannedRules>[] {
    let counts = this.#countsOf.get(like);
    if (counts === undefined) {
      counts = countsIn(this.#rulesOf(like));
      this.#countsOf.set(like, counts);
    }
    return counts;
  }
}

/** The number of rules in each chain. */
function countsIn(rules: readonly SharedRule[]): InTable<UnplannedRules>[] {
  const counts = new Map<string, { readonly table: ServiceTable; readonly chain: string; count: number }>();
  for (const { table, rule } of rules) {
    const known = counts.get(`${table} ${rule.chain}`);
    if (known === undefined) counts.set(`${table} ${rule.chain}`, { table, chain: rule.chain, count: 1 });
    else known.count += 1;
  }
  return Array.from(counts.values(), ({ table, chain, count }) => ({ table, rule: { chain, count } }));
}
