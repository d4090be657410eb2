/** What the kernel holds: the static rules, those of every owner, and the totals, which are kept by difference. */
import type { Rule } from "../../../kernel/iptables/rule.ts";
import { countByChain, type OwnerRules } from "./owner-rules.ts";
import type { WrittenRules } from "./payload.ts";
import type { ServiceTable, StaticPlan } from "./rules-plan.ts";

const TABLES = ["filter", "nat"] as const;

export class InstalledRules implements Iterable<readonly [owner: string, rules: OwnerRules]> {
  readonly #rules = new Map<string, OwnerRules>();
  readonly #chains = { filter: new Map<string, number>(), nat: new Map<string, number>() };
  #ownRuleCount = 0;
  readonly #lacking = { internal: 0, external: 0 };

  get(owner: string): OwnerRules | undefined {
    return this.#rules.get(owner);
  }

  [Symbol.iterator](): Iterator<readonly [owner: string, rules: OwnerRules]> {
    return this.#rules[Symbol.iterator]();
  }

  /** @param rules undefined for none. */
  set(owner: string, rules: OwnerRules | undefined): void {
    const old = this.#rules.get(owner);
    if (old !== undefined) this.#count(old, -1);
    if (rules === undefined) {
      this.#rules.delete(owner);
      return;
    }
    this.#rules.set(owner, rules);
    this.#count(rules, 1);
  }

  /** A full sync has written these, and nothing else. */
  replace(plan: StaticPlan, installed: Iterable<readonly [owner: string, rules: OwnerRules]>): void {
    this.#rules.clear();
    this.#begin("filter", plan.filterChains, [...plan.filterHead, ...plan.filterTail]);
    this.#begin("nat", plan.natChains, [...plan.natHead, ...plan.natTail]);
    this.#ownRuleCount = 0;
    this.#lacking.internal = this.#lacking.external = 0;
    for (const [owner, rules] of installed) this.set(owner, rules);
  }

  /** Rules in each chain that owners share or that is fixed. */
  get chains(): Readonly<Record<ServiceTable, ReadonlyMap<string, number>>> {
    return this.#chains;
  }

  /** Rules of each table. */
  get ruleCounts(): WrittenRules {
    return { filter: sumOf(this.#chains.filter), nat: sumOf(this.#chains.nat) + this.#ownRuleCount };
  }

  /** Service ports with a Local policy, endpoints somewhere and none here. */
  get noLocalEndpoints(): { readonly internal: number; readonly external: number } {
    return { ...this.#lacking };
  }

  #begin(table: ServiceTable, chains: readonly string[], rules: readonly Rule[]): void {
    this.#chains[table].clear();
    for (const chain of chains) this.#add(table, chain, 0);
    for (const { chain } of rules) this.#add(table, chain, 1);
  }

  #add(table: ServiceTable, chain: string, count: number): void {
    this.#chains[table].set(chain, (this.#chains[table].get(chain) ?? 0) + count);
  }

  #count(rules: OwnerRules, sign: 1 | -1): void {
    for (const table of TABLES) {
      for (const [chain, count] of countByChain(rules[table])) this.#add(table, chain, sign * count);
    }
    this.#ownRuleCount += sign * rules.ownRuleCount;
    if (rules.lacksLocal.internal) this.#lacking.internal += sign;
    if (rules.lacksLocal.external) this.#lacking.external += sign;
  }
}

function sumOf(counts: ReadonlyMap<string, number>): number {
  let sum = 0;
  for (const count of counts.values()) sum += count;
  return sum;
}
