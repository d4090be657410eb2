/**
 * The portal rules, which lead packets for Service addresses to the proxy's sockets. Reference userspace.md §1.2, §1.3.
 */

import type { ChainName, Rule, RuleMatch, RuleTarget } from "../../kernel/iptables/rule.ts";
import type { LocalTrafficDetector } from "../../model/local-traffic-detector.ts";
import type { ServicePort } from "../../model/service-port.ts";
import {
  type Cidr,
  cidrContains,
  hostCidr,
  type IpAddress,
  isUnspecified,
  joinHostPort,
  narrowerCidr,
} from "../../net/ip.ts";
import { protocolName } from "../../net/protocol.ts";
import type { JumpRule, ServicePortPlan, SharedRule, StaticPlan } from "../shared/iptables-rules/rules-plan.ts";
import { localPods } from "../shared/iptables-rules/top-level-rules.ts";
import type { ProxyAddresses } from "./listen-address.ts";
import { isServed, type Lane, laneOf, type Portal } from "./portals.ts";

/** Incoming packets pass the `container` chains, those of the host itself the `host` ones. */
export const PORTAL_CHAINS = {
  container: "KUBE-PORTALS-CONTAINER" as ChainName,
  host: "KUBE-PORTALS-HOST" as ChainName,
  nodePortContainer: "KUBE-NODEPORT-CONTAINER" as ChainName,
  nodePortHost: "KUBE-NODEPORT-HOST" as ChainName,
  /** In table filter, like the next one; the others are in nat. */
  nodePortNonLocal: "KUBE-NODEPORT-NON-LOCAL" as ChainName,
  /** Rejects packets to Services without endpoints, whose clients would otherwise wait. Not upstream's. */
  unserved: "KUBE-PORTALS-UNSERVED" as ChainName,
} as const;

const LOCAL: RuleMatch = { kind: "address-type", side: "destination", type: "LOCAL" };
const PORTALS = "handle ClusterIPs; NOTE: this must be before the NodePort rules";
const NODE_PORTS = "handle service NodePorts; NOTE: this must be the last rule in the chain";
const UNSERVED = "refuse what no endpoint serves";
const NEW_CONNECTIONS: RuleMatch = { kind: "conntrack-state", states: ["NEW"] };
const NON_LOCAL = "Ensure that non-local NodePort traffic can flow";

function jump(
  table: JumpRule["table"],
  source: string,
  target: ChainName,
  comment: string,
  matches: readonly RuleMatch[] = [],
): JumpRule {
  const rule: Rule = {
    chain: source,
    matches: [...matches, { kind: "comment", text: comment }],
    target: { kind: "jump", chain: target },
  };
  // Node ports come last, because they match every local address.
  return { table, rule, target, isShared: false, position: matches.includes(LOCAL) ? "end" : "head" };
}

/** In the order of insertion. */
export const PORTAL_JUMPS: readonly JumpRule[] = [
  jump("nat", "PREROUTING", PORTAL_CHAINS.container, PORTALS),
  jump("nat", "OUTPUT", PORTAL_CHAINS.host, PORTALS),
  jump("nat", "PREROUTING", PORTAL_CHAINS.nodePortContainer, NODE_PORTS, [LOCAL]),
  jump("nat", "OUTPUT", PORTAL_CHAINS.nodePortHost, NODE_PORTS, [LOCAL]),
  jump("filter", "INPUT", PORTAL_CHAINS.nodePortNonLocal, NON_LOCAL),
  ...["INPUT", "FORWARD", "OUTPUT"].map((chain) =>
    jump("filter", chain, PORTAL_CHAINS.unserved, UNSERVED, [NEW_CONNECTIONS]),
  ),
];

/** The static part of a full payload: chains, which do not depend on Services, and no rules. */
export const PORTAL_STATIC_PLAN: StaticPlan = {
  filterChains: [PORTAL_CHAINS.nodePortNonLocal, PORTAL_CHAINS.unserved],
  natChains: [PORTAL_CHAINS.container, PORTAL_CHAINS.host, PORTAL_CHAINS.nodePortContainer, PORTAL_CHAINS.nodePortHost],
  filterHead: [],
  filterTail: [],
  natHead: [],
  natTail: [],
};

/** Constant while the host keeps its address. */
export interface PortalPlanConfig extends ProxyAddresses {
  /** Whether rules may match packets by bridge port (xt_physdev). */
  readonly knowsBridgePorts: boolean;
  /** Distinguishes the cluster's pods from clients outside. */
  readonly detector: LocalTrafficDetector;
}

/** The proxy's own port for each lane that is open. */
export type LanePorts = Readonly<Partial<Record<Lane, number>>>;

/** Plans the rules that lead to the lanes. @param portals those that the service port owns. */
export function planPortalRules(
  port: ServicePort,
  portals: readonly Portal[],
  proxyPorts: LanePorts,
  config: PortalPlanConfig,
): ServicePortPlan {
  const facts = { ...config, owner: port, proxyPorts };
  return {
    shared: portals.flatMap((portal) => [...rulesOf(facts, portal), ...refusalsOf(facts, portal)]),
    ownChains: [],
    ownRules: [],
  };
}

interface PlanFacts extends PortalPlanConfig {
  readonly owner: ServicePort;
  readonly proxyPorts: LanePorts;
}

/** Where packets of one lane are sent. */
interface LaneTarget {
  readonly proxyPort: number;
  readonly fromContainers: RuleTarget;
  readonly fromHost: RuleTarget;
}

/** Clients in the container chain: the cluster's pods, or all that no earlier rule matched. */
interface Arrival {
  /** Undefined: any source. An iptables rule can match one source only. */
  readonly source: Cidr | undefined;
  readonly matches: readonly RuleMatch[];
  readonly target: LaneTarget;
}

function rulesOf(facts: PlanFacts, portal: Portal): SharedRule[] {
  const arrivals = arrivalsAt(facts, portal);
  const host = targetOf(facts, portal, laneOf(portal, true));
  const ranges = portal.sources.length === 0 ? [undefined] : sourcesOf(facts, portal);
  const rules = ranges.flatMap((range) => natRules(facts, portal, range, arrivals, host));
  return portal.kind === "node-port" ? [...rules, ...openings(facts, arrivals, host)] : rules;
}

/** Rules for packets that no nat rule matched, so that they still have the Service's address. */
function refusalsOf(facts: PlanFacts, { address, port, fate }: Portal): SharedRule[] {
  if (fate === "serve") return [];
  const matches = matchesFor(facts, address, port);
  if (address === undefined) matches.push(LOCAL);
  const target: RuleTarget = { kind: fate === "drop" ? "drop" : "reject" };
  return [{ table: "filter", rule: { chain: PORTAL_CHAINS.unserved, matches, target } }];
}

/** Undefined if the lane is not open or its clients are not served. */
function targetOf(facts: PlanFacts, portal: Portal, lane: Lane): LaneTarget | undefined {
  const { listenAddress, hostAddress } = facts;
  const proxyPort = facts.proxyPorts[lane];
  if (proxyPort === undefined || !isServed(portal, lane)) return undefined;
  const listensEverywhere = isUnspecified(listenAddress);
  const dnat = (address: IpAddress): RuleTarget => ({ kind: "dnat", to: joinHostPort(address, proxyPort) });
  return {
    proxyPort,
    fromContainers: listensEverywhere ? { kind: "redirect", port: proxyPort } : dnat(listenAddress),
    fromHost: dnat(listensEverywhere ? hostAddress : listenAddress),
  };
}

function arrivalsAt(facts: PlanFacts, portal: Portal): Arrival[] {
  const [inside, outside] = [laneOf(portal, true), laneOf(portal, false)];
  const arrivals: Arrival[] = [];
  const insideTarget = targetOf(facts, portal, inside);
  const { detector } = facts;
  const pods = localPods(detector, false);
  if (inside !== outside && insideTarget !== undefined && pods !== undefined) {
    const source = detector.kind === "cidr" ? detector.cidr : undefined;
    arrivals.push({ source, matches: source === undefined ? [pods] : [], target: insideTarget });
  }
  const target = targetOf(facts, portal, outside);
  if (target !== undefined) arrivals.push({ source: undefined, matches: [], target });
  return arrivals;
}

/** If the node itself has the address, its own packets to the address also come from it. */
function sourcesOf({ hostAddress }: PlanFacts, { address, sources }: Portal): readonly Cidr[] {
  const letsNodeIn = sources.some((range) => cidrContains(range, hostAddress));
  return letsNodeIn && address !== undefined ? [...sources, hostCidr(address)] : sources;
}

/** @param range of clients; undefined: all. */
function natRules(
  facts: PlanFacts,
  { kind, address, port }: Portal,
  range: Cidr | undefined,
  arrivals: readonly Arrival[],
  host: LaneTarget | undefined,
): SharedRule[] {
  const matches = matchesFor(facts, address, port);
  const isExternal = kind === "external-ip";
  const bridgeMatches: readonly RuleMatch[] = facts.knowsBridgePorts ? [{ kind: "bridge-port-in", negate: true }] : [];
  const [fromContainers, fromHost] =
    kind === "node-port"
      ? [PORTAL_CHAINS.nodePortContainer, PORTAL_CHAINS.nodePortHost]
      : [PORTAL_CHAINS.container, PORTAL_CHAINS.host];
  const rules = arrivalsWithin(range, arrivals).flatMap((arrival) => {
    const arriving = [...matches, ...matchesOf(arrival)];
    // Pods reach an external IP through its holder, unless this node is the holder.
    const ways = isExternal
      ? [
          [...arriving, ...bridgeMatches],
          [...arriving, LOCAL],
        ]
      : [arriving];
    return ways.map((way) => nat(fromContainers, way, arrival.target.fromContainers));
  });
  if (host !== undefined) {
    const own: RuleMatch[] = range === undefined ? [...matches] : [...matches, { kind: "source", address: range }];
    if (isExternal) own.push(LOCAL);
    rules.push(nat(fromHost, own, host.fromHost));
  }
  return rules;
}

/** INPUT comes after the redirection, so these rules match the proxy's ports, not the node port (userspace.md §1.3). */
function openings(facts: PlanFacts, arrivals: readonly Arrival[], host: LaneTarget | undefined): SharedRule[] {
  const targets = [...arrivals.map(({ target }) => target), ...(host === undefined ? [] : [host])];
  return [...new Set(targets.map(({ proxyPort }) => proxyPort))].map((proxyPort) => {
    const matches: RuleMatch[] = [...matchesFor(facts, undefined, proxyPort), { kind: "state", states: ["NEW"] }];
    const rule: Rule = { chain: PORTAL_CHAINS.nodePortNonLocal, matches, target: { kind: "accept" } };
    return { table: "filter", rule };
  });
}

function matchesFor({ owner }: PlanFacts, address: IpAddress | undefined, port: number): RuleMatch[] {
  const { name, protocol } = owner;
  const matches: RuleMatch[] = [
    { kind: "comment", text: name.text },
    { kind: "protocol", protocol: protocolName(protocol) },
    { kind: "destination-port", port },
  ];
  if (address !== undefined) matches.push({ kind: "destination", address: hostCidr(address) });
  return matches;
}

/** Restricts arrivals to a range; for pods, to the intersection. */
function arrivalsWithin(range: Cidr | undefined, arrivals: readonly Arrival[]): readonly Arrival[] {
  if (range === undefined) return arrivals;
  return arrivals.flatMap((arrival) => {
    const source = arrival.source === undefined ? range : narrowerCidr(arrival.source, range);
    return source === undefined ? [] : [{ ...arrival, source }];
  });
}

function matchesOf({ source, matches }: Arrival): readonly RuleMatch[] {
  return source === undefined ? matches : [{ kind: "source", address: source }, ...matches];
}

function nat(chain: ChainName, matches: readonly RuleMatch[], target: RuleTarget): SharedRule {
  return { table: "nat", rule: { chain, matches, target } };
}
