/** What the chains in the kernel should hold, from what was written: as much as `chain-check.ts` compares. Pure. */
import type { Rule } from "../../kernel/iptables/rule.ts";
import type { SharedCounts } from "../shared/iptables-rules/installed-rules.ts";
import type { StaticPlan } from "../shared/iptables-rules/rules-plan.ts";
import type { WrittenChains } from "./chain-check.ts";
import type { InstalledPorts } from "./installed-ports.ts";

export const NO_STATIC_CHAINS: SharedCounts = { filter: new Map(), nat: new Map() };

/** Static rules of each fixed chain, by table. */
export function staticChainsOf(plan: StaticPlan): SharedCounts {
  return {
    filter: countsOf(plan.filterChains, [...plan.filterHead, ...plan.filterTail]),
    nat: countsOf(plan.natChains, [...plan.natHead, ...plan.natTail]),
  };
}

/** @param refused owners of which the kernel may have other rules than these. */
export function writtenChains(
  installed: InstalledPorts,
  refused: { has(owner: string): boolean; readonly size: number },
  fixed: SharedCounts,
): WrittenChains {
  if (refused.size > 0) {
    const ports = [...installed].filter(([owner]) => !refused.has(owner));
    return { ports, shared: { filter: undefined, nat: undefined } };
  }
  const { filter, nat } = installed.sharedCounts;
  return { ports: [...installed], shared: { filter: sum(fixed.filter, filter), nat: sum(fixed.nat, nat) } };
}

function sum(fixed: ReadonlyMap<string, number>, shared: ReadonlyMap<string, number>): Map<string, number> {
  const counts = new Map(fixed);
  for (const [chain, count] of shared) counts.set(chain, (counts.get(chain) ?? 0) + count);
  return counts;
}

function countsOf(chains: readonly string[], rules: readonly Rule[]): Map<string, number> {
  const counts = new Map(chains.map((chain) => [chain, 0]));
  for (const { chain } of rules) counts.set(chain, (counts.get(chain) ?? 0) + 1);
  return counts;
}
