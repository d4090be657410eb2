/**
 * What belongs to no service: base chains, the fixed chains between them, and the sets and maps that services fill.
 * Reference nftables.md §2, §3. Pure.
 */
import type { NftChain, NftHook, NftKeyType, NftRule, NftSet, NftStatement } from "../../kernel/nftables/ruleset.ts";
import type { LocalTrafficDetector } from "../../model/local-traffic-detector.ts";
import type { Cidr } from "../../net/ip.ts";
import { CHAINS, SETS } from "./names.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";

const LOCALHOST = { IPv4: "127.0.0.0/8" as Cidr, IPv6: "::1/128" as Cidr } as const;

const DSTNAT = -100;
const SRCNAT = 100;
/** Before destination NAT, where a packet still has the address that the client asked for. */
const PRE_DNAT = DSTNAT - 10;

/** Everything but services: sets before the chains that refer to them. */
export interface StaticPlan {
  readonly sets: readonly NftSet[];
  readonly chains: readonly NftChain[];
}

const FRONT_END: readonly NftKeyType[] = ["address", "protocol", "port"];
const NODE_PORT: readonly NftKeyType[] = ["protocol", "port"];

function set(name: string, key: readonly NftKeyType[], comment: string): NftSet {
  return { name, key, isMap: false, comment };
}

function map(name: string, key: readonly NftKeyType[], comment: string): NftSet {
  return { name, key, isMap: true, comment };
}

const NODE_PORT_IPS = set(SETS.nodePortIPs, ["address"], "IPs that accept NodePort traffic");

/** Every set and map that services share, in upstream's order of creation, which is the order of `nft list`. */
export const SHARED_SETS: readonly NftSet[] = [
  set(SETS.hairpinConnections, ["address", "address", "protocol", "port"], "service hairpin connections"),
  set(SETS.clusterIPs, ["address"], "Active ClusterIPs"),
  NODE_PORT_IPS,
  map(SETS.noEndpointServices, FRONT_END, "vmap to drop or reject packets to services with no endpoints"),
  map(SETS.noEndpointNodePorts, NODE_PORT, "vmap to drop or reject packets to service nodeports with no endpoints"),
  map(SETS.firewallIPs, FRONT_END, "destinations that are subject to LoadBalancerSourceRanges"),
  map(SETS.serviceIPs, FRONT_END, "ClusterIP, ExternalIP and LoadBalancer IP traffic"),
  map(SETS.serviceNodePorts, NODE_PORT, "NodePort traffic"),
];

const NEW: NftStatement = { kind: "ct-new" };
const jumpTo = (chain: string): NftStatement => ({ kind: "verdict", verdict: { kind: "jump", chain } });
const rule = (...statements: NftStatement[]): NftRule => ({ statements });
const frontendMap = (name: string): NftStatement => ({
  kind: "vmap",
  fields: ["daddr", "l4proto", "dport"],
  map: name,
});
const nodePortMap = (name: string): NftStatement => ({ kind: "vmap", fields: ["l4proto", "dport"], map: name });
const toAddressIn = (name: string): NftStatement => ({ kind: "lookup", fields: ["daddr"], set: name });

/** Plans the static part. Pure. */
export function planStatic(config: PlanConfig, facts: PlanFacts): StaticPlan {
  const matchesAll = facts.nodePortIPs.kind === "all";
  return {
    sets: matchesAll ? SHARED_SETS.filter((shared) => shared !== NODE_PORT_IPS) : SHARED_SETS,
    chains: [...baseChains(), ...fixedChains(config, facts)],
  };
}

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

type BaseChainName = (typeof BASE_CHAINS)[number];

function baseChain(
  name: BaseChainName,
  type: NftHook["type"],
  hook: NftHook["hook"],
  priority: number,
  rules: NftRule[],
) {
  return { name, hook: { type, hook, priority }, rules };
}

function baseChains(): NftChain[] {
  const endpointsCheck = rule(NEW, jumpTo(CHAINS.serviceEndpointsCheck));
  const clusterIPsCheck = rule(NEW, jumpTo(CHAINS.clusterIPsCheck));
  const firewallCheck = rule(NEW, jumpTo(CHAINS.firewallCheck));
  const services = rule(jumpTo(CHAINS.services));
  return [
    baseChain("filter-prerouting-pre-dnat", "filter", "prerouting", PRE_DNAT, [firewallCheck]),
    baseChain("filter-output-pre-dnat", "filter", "output", PRE_DNAT, [firewallCheck]),
    baseChain("filter-input", "filter", "input", 0, [rule(NEW, jumpTo(CHAINS.nodePortEndpointsCheck)), endpointsCheck]),
    baseChain("filter-forward", "filter", "forward", 0, [endpointsCheck, clusterIPsCheck]),
    baseChain("filter-output", "filter", "output", 0, [endpointsCheck, clusterIPsCheck]),
    baseChain("nat-prerouting", "nat", "prerouting", DSTNAT, [services]),
    baseChain("nat-output", "nat", "output", DSTNAT, [services]),
    baseChain("nat-postrouting", "nat", "postrouting", SRCNAT, [rule(jumpTo(CHAINS.masquerading))]),
  ];
}

function fixedChains(config: PlanConfig, facts: PlanFacts): NftChain[] {
  const matchesAll = facts.nodePortIPs.kind === "all";
  const notLocalhost: NftStatement = {
    kind: "address",
    side: "daddr",
    negate: true,
    cidrs: [LOCALHOST[config.family]],
  };
  const toNodePortIP = matchesAll ? [notLocalhost] : [toAddressIn(SETS.nodePortIPs)];
  const isLocalDestination: NftStatement[] = matchesAll ? [{ kind: "fib-local", side: "daddr" }] : [];
  return [
    {
      name: CHAINS.nodePortEndpointsCheck,
      rules: [rule(...toNodePortIP, nodePortMap(SETS.noEndpointNodePorts))],
    },
    { name: CHAINS.serviceEndpointsCheck, rules: [rule(frontendMap(SETS.noEndpointServices))] },
    { name: CHAINS.firewallCheck, rules: [rule(frontendMap(SETS.firewallIPs))] },
    {
      name: CHAINS.services,
      rules: [
        ...masqueradeClusterIPs(config),
        rule(frontendMap(SETS.serviceIPs)),
        rule(...isLocalDestination, ...toNodePortIP, nodePortMap(SETS.serviceNodePorts)),
      ],
    },
    { name: CHAINS.masquerading, rules: masqueradeRules(config) },
    { name: CHAINS.clusterIPsCheck, rules: clusterIPRules(facts) },
    {
      name: CHAINS.reject,
      comment: "helper for @no-endpoint-services / @no-endpoint-nodeports",
      rules: [rule({ kind: "reject" })],
    },
  ];
}

/** The match for traffic of local pods, or of everybody else; undefined without a detector. Pure. */
export function detectorStatement(detector: LocalTrafficDetector, negate: boolean): NftStatement | undefined {
  switch (detector.kind) {
    case "none":
      return undefined;
    case "cidr":
      return { kind: "address", side: "saddr", negate, cidrs: [detector.cidr] };
    case "interface":
      return { kind: "in-interface", name: detector.name, isPrefix: false, negate };
    case "interface-prefix":
      return { kind: "in-interface", name: detector.prefix, isPrefix: true, negate };
  }
}

function masqueradeClusterIPs(config: PlanConfig): NftRule[] {
  const mark: NftStatement = { kind: "mark-set", operation: "or", value: config.masqueradeMark };
  const toClusterIP = toAddressIn(SETS.clusterIPs);
  if (config.masqueradeAll) {
    return [{ statements: [toClusterIP, mark], comment: "masquerade all clusterIP traffic" }];
  }
  const notLocal = detectorStatement(config.detector, true);
  if (notLocal === undefined) return [];
  return [{ statements: [toClusterIP, notLocal, mark], comment: "masquerade clusterIP traffic from outside cluster" }];
}

/** The mark is cleared before masquerading, so that a packet that comes round again is not masqueraded twice. */
function masqueradeRules(config: PlanConfig): NftRule[] {
  const masquerade: NftStatement = { kind: "masquerade" };
  return [
    rule(
      { kind: "mark-test", mask: config.masqueradeMark },
      { kind: "mark-set", operation: "xor", value: config.masqueradeMark },
      masquerade,
    ),
    rule(
      { kind: "ct-dnat" },
      { kind: "lookup", fields: ["saddr", "daddr", "l4proto", "dport"], set: SETS.hairpinConnections },
      masquerade,
    ),
  ];
}

function clusterIPRules(facts: PlanFacts): NftRule[] {
  const rules: NftRule[] = [
    {
      statements: [toAddressIn(SETS.clusterIPs), { kind: "reject" }],
      comment: "Reject traffic to invalid ports of ClusterIPs",
    },
  ];
  if (facts.serviceCIDRs.length > 0) {
    rules.push({
      statements: [
        { kind: "address", side: "daddr", cidrs: facts.serviceCIDRs },
        { kind: "verdict", verdict: { kind: "drop" } },
      ],
      comment: "Drop traffic to unallocated ClusterIPs",
    });
  }
  return rules;
}
