/** What the kernel holds for every owner, and the totals, which are kept by difference. */
import { type InstalledRules, type SharedCounts, sumOf } from "../shared/iptables-rules/installed-rules.ts";
import type { WrittenRules } from "../shared/iptables-rules/payload.ts";

export class InstalledPorts implements Iterable<readonly [owner: string, rules: InstalledRules]> {
  readonly #rules = new Map<string, InstalledRules>();
  readonly #shared = { filter: new Map<string, number>(), nat: new Map<string, number>() };
  #ownRuleCount = 0;
  readonly #lacking = { internal: 0, external: 0 };

  get(owner: string): InstalledRules | undefined {
    return this.#rules.get(owner);
  }

  [Symbol.iterator](): Iterator<readonly [owner: string, rules: InstalledRules]> {
    return this.#rules[Symbol.iterator]();
  }

  /** @param rules undefined for none. */
  set(owner: string, rules: InstalledRules | undefined): void {
    const old = this.#rules.get(owner);
    if (old !== undefined) this.#count(old, -1);
    if (rules === undefined) {
      this.#rules.delete(owner);
      return;
    }
    this.#rules.set(owner, rules);
    this.#count(rules, 1);
  }

  /** @param installed takes the place of everything. */
  replace(installed: Iterable<readonly [owner: string, rules: InstalledRules]>): void {
    this.#rules.clear();
    for (const table of ["filter", "nat"] as const) this.#shared[table].clear();
    this.#ownRuleCount = 0;
    this.#lacking.internal = this.#lacking.external = 0;
    for (const [owner, rules] of installed) this.set(owner, rules);
  }

  /** Entries of shared chains, by chain. */
  get sharedCounts(): SharedCounts {
    return this.#shared;
  }

  /** Rules of each table. */
  get ruleCounts(): WrittenRules {
    return { filter: sumOf(this.#shared.filter), nat: sumOf(this.#shared.nat) + this.#ownRuleCount };
  }

  /** Service ports with a Local policy, endpoints somewhere and none here. */
  get noLocalEndpoints(): { readonly internal: number; readonly external: number } {
    return { ...this.#lacking };
  }

  #count({ sharedCounts, ownRuleCount, lacksLocal }: InstalledRules, sign: 1 | -1): void {
    for (const table of ["filter", "nat"] as const) {
      const sums = this.#shared[table];
      for (const [chain, count] of sharedCounts[table]) sums.set(chain, (sums.get(chain) ?? 0) + sign * count);
    }
    this.#ownRuleCount += sign * ownRuleCount;
    if (lacksLocal.internal) this.#lacking.internal += sign;
    if (lacksLocal.external) this.#lacking.external += sign;
  }
}
