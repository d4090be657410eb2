/** What the chains in the kernel should hold, from what was written: as much as `chain-check.ts` compares. Pure. */
import type { Rule } from "../../kernel/iptables/rule.ts";
import { countByChain, type InstalledRules } from "../shared/iptables-rules/port-rules.ts";
import type { StaticPlan } from "../shared/iptables-rules/rules-plan.ts";
import type { CheckedTable, WrittenChains } from "./chain-check.ts";

/** Static rules of each fixed chain, by table. */
export type StaticChains = Readonly<Record<CheckedTable, ReadonlyMap<string, number>>>;

export const NO_STATIC_CHAINS: StaticChains = { filter: new Map(), nat: new Map() };

export function staticChainsOf(plan: StaticPlan): StaticChains {
  return {
    filter: countsOf(plan.filterChains, [...plan.filterHead, ...plan.filterTail]),
    nat: countsOf(plan.natChains, [...plan.natHead, ...plan.natTail]),
  };
}

/** @param refused owners of which the kernel may have other rules than these. */
export function writtenChains(
  known: ReadonlyMap<string, InstalledRules>,
  refused: { has(owner: string): boolean; readonly size: number },
  fixed: StaticChains,
): WrittenChains {
  const ports = [...known].filter(([owner]) => !refused.has(owner));
  if (refused.size > 0) return { ports, shared: { filter: undefined, nat: undefined } };
  const shared = { filter: new Map(fixed.filter), nat: new Map(fixed.nat) };
  for (const [, { filterShared, natShared }] of ports) {
    countByChain(filterShared, shared.filter);
    countByChain(natShared, shared.nat);
  }
  return { ports, shared };
}

function countsOf(chains: readonly string[], rules: readonly Rule[]): Map<string, number> {
  const counts = new Map(chains.map((chain) => [chain, 0]));
  for (const { chain } of rules) counts.set(chain, (counts.get(chain) ?? 0) + 1);
  return counts;
}
