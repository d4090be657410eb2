/**
 * What belongs to no Service in upstream's layout: the fixed chains, and the sets and maps that Services fill.
 * Reference nftables.md §2, §3.
 */
import type { NftChain, NftRule, NftSet, NftStatement } from "../../../kernel/nftables/ruleset.ts";
import { baseChains, rule } from "../base-chains.ts";
import {
  CLUSTER_IPS,
  clusterIPRules,
  FRONT_END,
  HAIRPIN_CONNECTIONS,
  map,
  masqueradeClusterIPs,
  masqueradeRules,
  NODE_PORT,
  NODE_PORT_IPS,
  toNodePort,
} from "../common-rules.ts";
import { ENDPOINT_MAPS, type EndpointMap, FLAT_CHAINS } from "../flat/names.ts";
import { choiceRules, pickChains } from "../flat/plan-static.ts";
import { definitionsOf, type SetsOnDemand, setsOnDemand } from "../flat/sets.ts";
import { LOCALHOST_REJECT_PORTS, localhostRejection, setsInForce } from "../localhost-node-ports.ts";
import { CHAINS, SETS } from "../names.ts";
import type { PlanConfig, PlanFacts } from "../plan-options.ts";
import type { SetsInUse, StaticPlan } from "../table-plan.ts";

/** Every set and map that Services share, in upstream's order of creation, which `nft list` keeps. */
export const SHARED_SETS: readonly NftSet[] = [
  HAIRPIN_CONNECTIONS,
  CLUSTER_IPS,
  NODE_PORT_IPS,
  map(SETS.noEndpointServices, FRONT_END, "vmap to drop or reject packets to services with no endpoints"),
  map(SETS.noEndpointNodePorts, NODE_PORT, "vmap to drop or reject packets to service nodeports with no endpoints"),
  LOCALHOST_REJECT_PORTS,
  map(SETS.firewallIPs, FRONT_END, "destinations that are subject to LoadBalancerSourceRanges"),
  map(SETS.serviceIPs, FRONT_END, "ClusterIP, ExternalIP and LoadBalancer IP traffic"),
  map(SETS.serviceNodePorts, NODE_PORT, "NodePort traffic"),
];

const frontendMap = (name: string): NftStatement => ({
  kind: "vmap",
  fields: ["daddr", "l4proto", "dport"],
  map: name,
});
const nodePortMap = (name: string): NftStatement => ({ kind: "vmap", fields: ["l4proto", "dport"], map: name });

/** Where chains of service ports ask for an endpoint by hash: a packet has a key in one of the maps. */
export const HASHED_CHOICE = {
  cluster: [FLAT_CHAINS.frontendClusterEndpoints, FLAT_CHAINS.nodePortClusterEndpoints],
  local: [FLAT_CHAINS.frontendEndpoints, FLAT_CHAINS.nodePortEndpoints],
} as const;

/** @param inUse the maps of slots exist while service ports choose by hash. */
export function planStatic(config: PlanConfig, facts: PlanFacts, inUse: SetsInUse): StaticPlan {
  const rejection = localhostRejection(config, false);
  const demand = setsOnDemand(inUse);
  const isHashed = demand.slots.size > 0;
  return {
    counters: rejection.counters,
    sets: [...setsInForce(SHARED_SETS, config, facts), ...(isHashed ? definitionsOf(inUse, demand) : [])],
    chains: [
      ...baseChains(),
      ...fixedChains(config, facts, rejection.check),
      ...rejection.chains,
      ...(isHashed ? hashedChoice(demand, config) : []),
    ],
  };
}

function hashedChoice(demand: SetsOnDemand, config: PlanConfig): NftChain[] {
  const chain = (name: string, ...maps: readonly EndpointMap[]): NftChain => ({
    name,
    rules: maps.flatMap((map) => choiceRules(map, demand)),
  });
  const { frontend, frontendCluster, nodePort, nodePortCluster, ...sticky } = ENDPOINT_MAPS;
  return [
    ...pickChains(demand, config),
    chain(FLAT_CHAINS.frontendClusterEndpoints, frontendCluster, sticky.stickyCluster),
    chain(FLAT_CHAINS.nodePortClusterEndpoints, nodePortCluster, sticky.stickyNodePortCluster),
    chain(FLAT_CHAINS.frontendEndpoints, frontend, sticky.sticky),
    chain(FLAT_CHAINS.nodePortEndpoints, nodePort, sticky.stickyNodePort),
  ];
}

function fixedChains(config: PlanConfig, facts: PlanFacts, localhost: readonly NftRule[]): NftChain[] {
  return [
    {
      name: CHAINS.nodePortEndpointsCheck,
      rules: [rule(...toNodePort(config, facts, false), nodePortMap(SETS.noEndpointNodePorts)), ...localhost],
    },
    { name: CHAINS.serviceEndpointsCheck, rules: [rule(frontendMap(SETS.noEndpointServices))] },
    { name: CHAINS.firewallCheck, rules: [rule(frontendMap(SETS.firewallIPs))] },
    {
      name: CHAINS.services,
      rules: [
        ...masqueradeClusterIPs(config),
        rule(frontendMap(SETS.serviceIPs)),
        rule(...toNodePort(config, facts, true), nodePortMap(SETS.serviceNodePorts)),
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
