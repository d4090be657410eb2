/** The chains at the kernel's hooks, the same in every layout: reference nftables.md §2, §3. */
import type { NftChain, NftHook, NftRule, NftStatement } from "../../kernel/nftables/ruleset.ts";
import { CHAINS } from "./names.ts";

const DSTNAT = -100;
const SRCNAT = 100;
/** Before destination NAT, while a packet still has the address that the client used. */
const PRE_DNAT = DSTNAT - 10;

/** Matches packets that open a connection. */
export const NEW: NftStatement = { kind: "ct-new" };
export const jumpTo = (chain: string): NftStatement => ({ kind: "verdict", verdict: { kind: "jump", chain } });
export const goTo = (chain: string): NftStatement => ({ kind: "verdict", verdict: { kind: "goto", chain } });
export const rule = (...statements: NftStatement[]): NftRule => ({ statements });

/** Names of the chains at the kernel's hooks. */
export const BASE_CHAINS = [
  "filter-prerouting-pre-dnat",
  "filter-output-pre-dnat",
  "filter-input",
  "filter-forward",
  "filter-output",
  "nat-prerouting",
  "nat-output",
  "nat-postrouting",
] as const;

function baseChain(
  name: (typeof BASE_CHAINS)[number],
  type: NftHook["type"],
  hook: NftHook["hook"],
  priority: number,
  rules: NftRule[],
) {
  return { name, hook: { type, hook, priority }, rules };
}

/** @param translated rules that follow those of every layout in the filter chains after destination NAT. */
export function baseChains(translated: readonly NftRule[] = []): NftChain[] {
  const endpointsCheck = rule(NEW, jumpTo(CHAINS.serviceEndpointsCheck));
  const clusterIPsCheck = rule(NEW, jumpTo(CHAINS.clusterIPsCheck));
  const firewallCheck = rule(NEW, jumpTo(CHAINS.firewallCheck));
  const services = rule(jumpTo(CHAINS.services));
  return [
    baseChain("filter-prerouting-pre-dnat", "filter", "prerouting", PRE_DNAT, [firewallCheck]),
    baseChain("filter-output-pre-dnat", "filter", "output", PRE_DNAT, [firewallCheck]),
    baseChain("filter-input", "filter", "input", 0, [
      rule(NEW, jumpTo(CHAINS.nodePortEndpointsCheck)),
      endpointsCheck,
      ...translated,
    ]),
    baseChain("filter-forward", "filter", "forward", 0, [endpointsCheck, clusterIPsCheck, ...translated]),
    baseChain("filter-output", "filter", "output", 0, [endpointsCheck, clusterIPsCheck, ...translated]),
    baseChain("nat-prerouting", "nat", "prerouting", DSTNAT, [services]),
    baseChain("nat-output", "nat", "output", DSTNAT, [services]),
    baseChain("nat-postrouting", "nat", "postrouting", SRCNAT, [rule(jumpTo(CHAINS.masquerading))]),
  ];
}
