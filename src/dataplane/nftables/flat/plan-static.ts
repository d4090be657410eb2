/**
 * What belongs to no service in the flat layout: all of its rules. Those that choose an endpoint are as many as there are
 * different numbers of endpoints and timeouts of affinity; services only have elements. docs/reference/flat-nftables.md §3.
 * Pure.
 */
import type { NftChain, NftField, NftRule, NftStatement } from "../../../kernel/nftables/ruleset.ts";
import { PROTOCOL_NAMES } from "../../../net/protocol.ts";
import { baseChains, goTo, jumpTo, NEW, rule } from "../base-chains.ts";
import {
  clusterIPRules,
  detectorStatement,
  masqueradeClusterIPs,
  masqueradeRules,
  NODE_PORT_IPS,
  toNodePort,
} from "../common-rules.ts";
import { CHAINS, SETS } from "../names.ts";
import type { PlanConfig, PlanFacts } from "../plan-options.ts";
import type { SetsInUse, StaticPlan } from "../table-plan.ts";
import {
  CLIENTS,
  ENDPOINT_MAPS,
  type EndpointMap,
  endpointMapName,
  FLAT_CHAINS,
  FLAT_SETS,
  STICKY_SETS,
  timedName,
} from "./names.ts";
import { definitionsOf, FIXED_SETS, type SetsOnDemand, setsOnDemand } from "./sets.ts";

const FRONTEND: readonly NftField[] = ["daddr", "l4proto", "dport"];
const NODE_PORT: readonly NftField[] = ["l4proto", "dport"];
/** A frontend as the client asked for it, after translation. */
const ASKED_FRONTEND: readonly NftField[] = ["original-daddr", "l4proto", "original-dport"];
const ASKED_NODE_PORT: readonly NftField[] = ["l4proto", "original-dport"];
/** A client at a frontend, before translation and after it. */
const CLIENT: readonly NftField[] = ["saddr", ...FRONTEND];
const ASKED_BY_CLIENT: readonly NftField[] = ["saddr", ...ASKED_FRONTEND];

const isIn = (fields: readonly NftField[], set: string): NftStatement => ({ kind: "lookup", fields, set });
const isNotIn = (fields: readonly NftField[], set: string): NftStatement => ({
  kind: "lookup",
  fields,
  set,
  negate: true,
});
const REJECT: NftStatement = { kind: "reject" };
const DROP: NftStatement = { kind: "verdict", verdict: { kind: "drop" } };

/** Plans the table without its elements. @param inUse decides which sets and rules there are beside the constant ones. */
export function planStatic(config: PlanConfig, facts: PlanFacts, inUse: SetsInUse): StaticPlan {
  const demand = setsOnDemand(inUse);
  const fixed = facts.nodePortIPs.kind === "all" ? FIXED_SETS.filter((set) => set !== NODE_PORT_IPS) : FIXED_SETS;
  const remembers = demand.timeouts.length > 0;
  const remember = remembers ? [rule(NEW, { kind: "ct-dnat" }, jumpTo(FLAT_CHAINS.rememberClients))] : [];
  return {
    sets: [...fixed, ...definitionsOf(inUse, demand)],
    chains: [
      ...baseChains(remember),
      ...checks(config, facts),
      ...frontendChains(config, demand),
      ...nodePortChains(config, demand),
      {
        name: CHAINS.services,
        rules: [
          ...masqueradeClusterIPs(config),
          rule(isIn(FRONTEND, FLAT_SETS.frontends), goTo(FLAT_CHAINS.frontend)),
          rule(...toNodePort(config, facts, true), isIn(NODE_PORT, FLAT_SETS.nodePorts), goTo(FLAT_CHAINS.nodePort)),
        ],
      },
      { name: CHAINS.masquerading, rules: masqueradeRules(config) },
      ...(remembers ? [{ name: FLAT_CHAINS.rememberClients, rules: rememberRules(facts, demand) }] : []),
    ],
  };
}

/** What becomes of packets that are not served, and who may ask. */
function checks(config: PlanConfig, facts: PlanFacts): NftChain[] {
  const toPort = toNodePort(config, facts, false);
  return [
    {
      name: CHAINS.nodePortEndpointsCheck,
      rules: [
        rule(...toPort, isIn(NODE_PORT, FLAT_SETS.rejectedNodePorts), REJECT),
        rule(...toPort, isIn(NODE_PORT, FLAT_SETS.droppedNodePorts), DROP),
      ],
    },
    {
      name: CHAINS.serviceEndpointsCheck,
      rules: [
        rule(isIn(FRONTEND, FLAT_SETS.rejectedFrontends), REJECT),
        rule(isIn(FRONTEND, FLAT_SETS.droppedFrontends), DROP),
      ],
    },
    {
      name: CHAINS.firewallCheck,
      rules: [
        rule(
          isIn(FRONTEND, FLAT_SETS.restrictedFrontends),
          isNotIn([...FRONTEND, "saddr"], FLAT_SETS.allowedSources),
          DROP,
        ),
      ],
    },
    { name: CHAINS.clusterIPsCheck, rules: clusterIPRules(facts) },
  ];
}

/** Chains stand after those that they go to. */
function frontendChains(config: PlanConfig, demand: SetsOnDemand): NftChain[] {
  const { frontend, frontendCluster } = ENDPOINT_MAPS;
  return [
    { name: FLAT_CHAINS.frontendEndpoints, rules: choiceRules(FRONTEND, frontend, demand) },
    { name: FLAT_CHAINS.frontendClusterEndpoints, rules: choiceRules(FRONTEND, frontendCluster, demand) },
    {
      name: FLAT_CHAINS.frontendLocalPolicy,
      rules: localPolicyRules(config, FLAT_CHAINS.frontendClusterEndpoints, FLAT_CHAINS.frontendEndpoints),
    },
    {
      name: FLAT_CHAINS.frontend,
      rules: [
        { statements: [isIn(FRONTEND, FLAT_SETS.masqueradedFrontends), mark(config)], comment: "masquerade" },
        rule(isIn(FRONTEND, FLAT_SETS.localPolicyFrontends), goTo(FLAT_CHAINS.frontendLocalPolicy)),
        rule(goTo(FLAT_CHAINS.frontendEndpoints)),
      ],
    },
  ];
}

function nodePortChains(config: PlanConfig, demand: SetsOnDemand): NftChain[] {
  const { nodePort, nodePortCluster } = ENDPOINT_MAPS;
  return [
    { name: FLAT_CHAINS.nodePortEndpoints, rules: choiceRules(NODE_PORT, nodePort, demand) },
    { name: FLAT_CHAINS.nodePortClusterEndpoints, rules: choiceRules(NODE_PORT, nodePortCluster, demand) },
    {
      name: FLAT_CHAINS.nodePortLocalPolicy,
      rules: localPolicyRules(config, FLAT_CHAINS.nodePortClusterEndpoints, FLAT_CHAINS.nodePortEndpoints),
    },
    {
      name: FLAT_CHAINS.nodePort,
      rules: [
        rule(isIn(NODE_PORT, FLAT_SETS.localPolicyNodePorts), goTo(FLAT_CHAINS.nodePortLocalPolicy)),
        { statements: [mark(config)], comment: "masquerade" },
        rule(goTo(FLAT_CHAINS.nodePortEndpoints)),
      ],
    },
  ];
}

function mark(config: PlanConfig): NftStatement {
  return { kind: "mark-set", operation: "or", value: config.masqueradeMark };
}

/** External traffic of the Local policy: that of this node and its pods can go to any endpoint (nftables.md §3.4). */
function localPolicyRules(config: PlanConfig, clusterEndpoints: string, localEndpoints: string): NftRule[] {
  const fromPod = detectorStatement(config.detector, false);
  const fromNode: NftStatement = { kind: "fib-local", side: "saddr" };
  const toCluster = goTo(clusterEndpoints);
  return [
    ...(fromPod === undefined ? [] : [{ statements: [fromPod, toCluster], comment: "short-circuit pod traffic" }]),
    { statements: [fromNode, mark(config)], comment: "masquerade local traffic" },
    { statements: [fromNode, toCluster], comment: "short-circuit local traffic" },
    rule(goTo(localEndpoints)),
  ];
}

/** A client's own endpoint, or one at random. A lookup that finds nothing ends its rule, and the next is tried. */
function choiceRules(fields: readonly NftField[], map: EndpointMap, { slots, timeouts }: SetsOnDemand): NftRule[] {
  const isNeeded = slots.has(map);
  return [
    ...(isNeeded ? timeouts : []).map((seconds) =>
      rule({ kind: "map-dnat", fields: CLIENT, map: timedName(CLIENTS, seconds) }),
    ),
    ...(slots.get(map) ?? []).map((count) =>
      rule({ kind: "map-dnat", fields, slots: count, map: endpointMapName(map, count) }),
    ),
  ];
}

/**
 * Keeps who asked where and got which endpoint, once it is decided. One rule for each protocol, since nft 1.0.6 needs to know
 * it to read the ports of a connection.
 */
function rememberRules(facts: PlanFacts, demand: SetsOnDemand): NftRule[] {
  const toNode = facts.nodePortIPs.kind === "all" ? [] : [isIn(["original-daddr"], SETS.nodePortIPs)];
  return demand.timeouts.flatMap((seconds) =>
    PROTOCOL_NAMES.flatMap((protocol) => {
      const isOfProtocol: NftStatement = { kind: "l4proto", protocol };
      const remember: NftStatement = {
        kind: "update-map",
        map: timedName(CLIENTS, seconds),
        key: ASKED_BY_CLIENT,
        target: ["reply-saddr", "reply-sport"],
      };
      const rules: NftRule[] = [];
      if (demand.frontendTimeouts.has(seconds)) {
        rules.push(rule(isOfProtocol, isIn(ASKED_FRONTEND, timedName(STICKY_SETS.frontend, seconds)), remember));
      }
      if (demand.nodePortTimeouts.has(seconds)) {
        const asksNodePort = [
          ...toNode,
          isIn(ASKED_NODE_PORT, timedName(STICKY_SETS.nodePort, seconds)),
          isNotIn(ASKED_FRONTEND, FLAT_SETS.frontends),
        ];
        rules.push(rule(isOfProtocol, ...asksNodePort, remember));
      }
      return rules;
    }),
  );
}
