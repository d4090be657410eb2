/**
 * What belongs to no Service in the flat layout: all of its rules; Services only have elements. There is one rule to choose
 * an endpoint for each distinct number of slots and each affinity timeout. docs/reference/flat-nftables.md §3.
 */
import type { NftChain, NftField, NftHash, NftRule, NftStatement } from "../../../kernel/nftables/ruleset.ts";
import { probeSeed, tablesOfClass } from "../../../model/sparse-tables.ts";
import { PROTOCOL_NAMES } from "../../../net/protocol.ts";
import { baseChains, goTo, jumpTo, NEW, rule } from "../base-chains.ts";
import {
  clusterIPRules,
  localPolicyRules,
  masquerade,
  masqueradeClusterIPs,
  masqueradeRules,
  toNodePort,
} from "../common-rules.ts";
import { localhostRejection, setsInForce } from "../localhost-node-ports.ts";
import { CHAINS, SETS } from "../names.ts";
import type { PlanConfig, PlanFacts } from "../plan-options.ts";
import type { SetsInUse, StaticPlan } from "../table-plan.ts";
import {
  ALLOWED_SOURCES,
  CLIENTS,
  ENDPOINT_MAPS,
  type EndpointMap,
  FLAT_CHAINS,
  FLAT_SETS,
  HASHES,
  type HashClass,
  hashSet,
  isOfChains,
  isOfNodePorts,
  numbered,
  pickChain,
  probesOf,
  REMEMBER,
  STICKY_SETS,
} from "./names.ts";
import { definitionsOf, FIXED_SETS, isCounting, type SetsOnDemand, setsOnDemand } from "./sets.ts";

const FRONTEND: readonly NftField[] = ["daddr", "l4proto", "dport"];
const NODE_PORT: readonly NftField[] = ["l4proto", "dport"];
/** The frontend that the client used, after translation. */
const ASKED_FRONTEND: readonly NftField[] = ["original-daddr", "l4proto", "original-dport"];
const ASKED_NODE_PORT: readonly NftField[] = ["l4proto", "original-dport"];
/** A client and its frontend, before translation and after it. */
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
const RETURN: NftStatement = { kind: "verdict", verdict: { kind: "return" } };

/** A frontend and this many bits of the client's address. */
function sourceOf(bits: number, { family }: PlanConfig): readonly NftField[] {
  return [...FRONTEND, bits === (family === "IPv4" ? 32 : 128) ? "saddr" : `saddr/${bits}`];
}

/** Plans the table without its elements. @param inUse decides which sets and rules exist beside the constant ones. */
export function planStatic(config: PlanConfig, facts: PlanFacts, inUse: SetsInUse): StaticPlan {
  const demand = setsOnDemand(inUse);
  const rejection = localhostRejection(config, true);
  const remembers = demand.timeouts.length > 0;
  const remember = remembers ? [rule(NEW, { kind: "ct-dnat" }, jumpTo(FLAT_CHAINS.rememberClients))] : [];
  return {
    counters: rejection.counters,
    sets: [...setsInForce(FIXED_SETS, config, facts), ...definitionsOf(inUse, demand)].map((set) =>
      isCounting(set.name, config.counted) ? { ...set, hasCounters: true } : set,
    ),
    chains: [
      ...baseChains(remember),
      ...checks(config, facts, demand, rejection.check),
      ...pickChains(demand, config),
      ...choosingChains("frontend", config, demand, (toLocalPolicy) => [
        masquerade(config, isIn(FRONTEND, FLAT_SETS.masqueradedFrontends)),
        rule(isIn(FRONTEND, FLAT_SETS.localPolicyFrontends), toLocalPolicy),
      ]),
      ...choosingChains("nodePort", config, demand, (toLocalPolicy) => [
        rule(isIn(NODE_PORT, FLAT_SETS.localPolicyNodePorts), toLocalPolicy),
        masquerade(config),
      ]),
      {
        name: CHAINS.services,
        rules: [
          ...masqueradeClusterIPs(config),
          rule(isIn(FRONTEND, FLAT_SETS.frontends), goTo(FLAT_CHAINS.frontend)),
          rule(...toNodePort(config, facts, true), isIn(NODE_PORT, FLAT_SETS.nodePorts), goTo(FLAT_CHAINS.nodePort)),
        ],
      },
      { name: CHAINS.masquerading, rules: masqueradeRules(config) },
      ...rejection.chains,
      ...rememberChains(facts, demand),
    ],
  };
}

/** The chains that reject or drop packets that are not served, and that check source ranges. */
function checks(
  config: PlanConfig,
  facts: PlanFacts,
  { sourceBits }: SetsOnDemand,
  localhost: readonly NftRule[],
): NftChain[] {
  const toPort = toNodePort(config, facts, false);
  return [
    {
      name: CHAINS.nodePortEndpointsCheck,
      rules: [
        rule(...toPort, isIn(NODE_PORT, FLAT_SETS.rejectedNodePorts), REJECT),
        rule(...toPort, isIn(NODE_PORT, FLAT_SETS.droppedNodePorts), DROP),
        ...localhost,
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
      rules: [rule(isIn(FRONTEND, FLAT_SETS.restrictedFrontends), goTo(FLAT_CHAINS.sourceCheck))],
    },
    {
      name: FLAT_CHAINS.sourceCheck,
      rules: [
        ...sourceBits.map((bits) => rule(isIn(sourceOf(bits, config), numbered(ALLOWED_SOURCES, bits)), RETURN)),
        rule(DROP),
      ],
    },
    { name: CHAINS.clusterIPsCheck, rules: clusterIPRules(facts) },
  ];
}

/** The chains that choose an endpoint for service addresses or node ports. A chain comes after those that it goes to. */
function choosingChains(
  of: "frontend" | "nodePort",
  config: PlanConfig,
  demand: SetsOnDemand,
  first: (toLocalPolicy: NftStatement) => readonly NftRule[],
): NftChain[] {
  const [endpoints, ofCluster] = [FLAT_CHAINS[`${of}Endpoints`], FLAT_CHAINS[`${of}ClusterEndpoints`]];
  const localPolicy = FLAT_CHAINS[`${of}LocalPolicy`];
  return [
    { name: endpoints, rules: choiceRules(ENDPOINT_MAPS[of], demand) },
    { name: ofCluster, rules: choiceRules(ENDPOINT_MAPS[`${of}Cluster`], demand) },
    { name: localPolicy, rules: [...localPolicyRules(config, goTo(ofCluster)), rule(goTo(endpoints))] },
    { name: FLAT_CHAINS[of], rules: [...first(goTo(localPolicy)), rule(goTo(endpoints))] },
  ];
}

/**
 * Picks a client's remembered endpoint, or one by hash, or a random one. A lookup without a match returns, and the next is tried. Each has
 * its own chain: for a rule with a map lookup the kernel walks the whole map, and a chain that gains a rule is rewritten.
 */
export function choiceRules(map: EndpointMap, { slots, hashes, timeouts }: SetsOnDemand): NftRule[] {
  const counts = slots.get(map) ?? [];
  const clients = counts.length === 0 ? [] : timeouts;
  const classes = hashes.filter((one) => one.map === map).map(hashSet);
  return [
    ...clients.map((seconds) => rule(jumpTo(pickChain(numbered(CLIENTS, seconds))))),
    ...classes.map((set) => rule(isIn(keyOf(map), set), jumpTo(pickChain(set)))),
    ...counts.map((count) => rule(jumpTo(pickChain(numbered(map, count))))),
  ];
}

export function pickChains({ slots, hashes, timeouts }: SetsOnDemand, { hashSeed }: PlanConfig): NftChain[] {
  return [
    ...timeouts.map((seconds): NftChain => {
      const map = numbered(CLIENTS, seconds);
      return { name: pickChain(map), rules: [rule({ kind: "map-dnat", fields: CLIENT, map })] };
    }),
    ...Object.values(ENDPOINT_MAPS).flatMap((map) =>
      (slots.get(map) ?? []).map((count): NftChain => {
        return { name: pickChain(numbered(map, count)), rules: [rule(lookUp(map, count))] };
      }),
    ),
    ...new Map(hashes.flatMap((one) => hashChains(one, hashSeed)).map((chain) => [chain.name, chain])).values(),
  ];
}

/** The chain of a class, after those that it shares with other classes: each asks for some slots of a table, and one of them may decide. */
function hashChains(of: HashClass, hashSeed: number): NftChain[] {
  const { fields } = HASHES[of.hashing];
  const chains = tablesOfClass(of.hashClass).flatMap(({ size, probes }) =>
    probes.map((upTo, index): NftChain => {
      const first = probes[index - 1] ?? 0;
      const rules = Array.from({ length: upTo - first }, (_, at) => {
        return rule(lookUp(of.map, size, { fields, seed: probeSeed(hashSeed, size, first + at) }));
      });
      return { name: pickChain(probesOf(of, size, upTo)), rules };
    }),
  );
  return [...chains, { name: pickChain(hashSet(of)), rules: chains.map(({ name }) => rule(jumpTo(name))) }];
}

function lookUp(map: EndpointMap, slots: number, hash?: NftHash): NftStatement {
  const key = { fields: keyOf(map), slots, ...(hash && { hash }), map: numbered(map, slots) };
  return { kind: isOfChains(map) ? "vmap" : "map-dnat", ...key };
}

function keyOf(map: EndpointMap): readonly NftField[] {
  return isOfNodePorts(map) ? NODE_PORT : FRONTEND;
}

/**
 * Records the client, its frontend and its endpoint once the endpoint is chosen. One rule for each protocol, since nft
 * 1.0.6 needs it to read the ports of a connection; one chain for each timeout, as for sizes ({@link choiceRules}).
 */
function rememberChains(facts: PlanFacts, { frontendTimeouts, nodePortTimeouts, timeouts }: SetsOnDemand): NftChain[] {
  const toNode = facts.nodePortIPs.kind === "all" ? [] : [isIn(["original-daddr"], SETS.nodePortIPs)];
  const chain = (name: string, seconds: number, ...asked: readonly NftStatement[]): NftChain => ({
    name: numbered(name, seconds),
    rules: PROTOCOL_NAMES.map((protocol) =>
      rule({ kind: "l4proto", protocol }, ...asked, {
        kind: "update-map",
        map: numbered(CLIENTS, seconds),
        key: ASKED_BY_CLIENT,
        target: ["reply-saddr", "reply-sport"],
      }),
    ),
  });
  const chains = timeouts.flatMap((seconds) => {
    const byFrontend = isIn(ASKED_FRONTEND, numbered(STICKY_SETS.frontend, seconds));
    const byNodePort = isIn(ASKED_NODE_PORT, numbered(STICKY_SETS.nodePort, seconds));
    return [
      ...(frontendTimeouts.has(seconds) ? [chain(REMEMBER.frontend, seconds, byFrontend)] : []),
      ...(nodePortTimeouts.has(seconds)
        ? [chain(REMEMBER.nodePort, seconds, ...toNode, byNodePort, isNotIn(ASKED_FRONTEND, FLAT_SETS.frontends))]
        : []),
    ];
  });
  if (chains.length === 0) return [];
  return [...chains, { name: FLAT_CHAINS.rememberClients, rules: chains.map(({ name }) => rule(jumpTo(name))) }];
}
