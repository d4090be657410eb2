/**
 * Traces a packet through the load balancers of Windows' HNS, as far as their behaviour is documented or reported (reference
 * windows.md §2.6, windows-practice.md §8). There are no hooks and no rule order: a frontend has one load balancer or none.
 */

import { type IpAddress, type IpFamily, joinHostPort, parseIpAddress } from "../../net/ip.ts";
import { protocolNameOfNumber } from "../../net/protocol.ts";
import { type Dump, DumpError, type DumpReader } from "../../trace/dump/recognise.ts";
import { isLocalQuestion, type NodeFacts } from "../../trace/facts.ts";
import type { Branch, Fate, TraceEnd, TraceEvent, TraceNode, WalkOptions } from "../../trace/netfilter/tree.ts";
import { fateOfLeaving } from "../../trace/netfilter/without-rules.ts";
import { endText, masqueraded, type Packet, withDestination, withSource } from "../../trace/packet.ts";
import { familyOfLoadBalancer } from "./frontend-keys.ts";
import {
  DISTRIBUTE_BY_SOURCE,
  LB_DSR,
  LB_IPV6,
  type LoadBalancerBehaviour,
  MAP_EXTERNAL_IP,
  MAP_LOCAL_ROUTED_VIP,
  MAP_PRESERVE_DIP,
  MAP_USE_MUX,
  type PortMapping,
  readLoadBalancerSettings,
} from "./hcn/documents.ts";
import { listOf, objectOf, textOf } from "./hcn/json-fields.ts";

type HostWalkOptions = Pick<WalkOptions, "record" | "random">;

/** A load balancer with its port mapping that matches a packet. */
interface Found {
  readonly loadBalancer: PlannedLoadBalancer;
  readonly mapping: PortMapping;
}

/** Whether the packet is for an address of the node. */
type Place = "node" | "elsewhere";

/**
 * Reads the output of `render` in this mode for `trace`. @throws DumpError
 *
 * @param unserved frontends without a load balancer (`tcp 10.96.0.10:80`), and the reason.
 */
export function hostDump(text: string, name: string, unserved: ReadonlyMap<string, string> = new Map()): Dump {
  const plan = { ...readHostPlan(text, name), unserved };
  return { kind: "walker", walk: (packet, facts, options) => walkHostPlan(plan, packet, facts, options) };
}

export const hostReader: DumpReader = {
  prints: "render in kernelspace mode",
  read: (text, name) => (PLAN.test(text) ? hostDump(text, name) : undefined),
};

/** Walks a packet to its end. */
function walkHostPlan(plan: HostPlan, packet: Packet, facts: NodeFacts, options: HostWalkOptions = {}): TraceNode {
  const events: TraceEvent[] = [{ kind: "stage", stage: "virtual switch", packet }];
  const type = facts.addressType(packet.destination);
  if (type !== undefined) {
    const rest = atPlace(plan, packet, type === "local" ? "node" : "elsewhere", facts, options);
    return { ...rest, events: [...events, ...rest.events] };
  }
  const question = isLocalQuestion(packet.destination);
  const branches = (["node", "elsewhere"] as const).map((place): Branch => {
    const label = place === "node" ? question : `${packet.destination} is no address of the node`;
    return { odds: undefined, label, node: atPlace(plan, packet, place, facts, options) };
  });
  return { events, end: { kind: "fork", question: `whether ${question}`, branches } };
}

function atPlace(plan: HostPlan, packet: Packet, place: Place, facts: NodeFacts, options: HostWalkOptions): TraceNode {
  const events: TraceEvent[] = [];
  const passedBy = ended(place === "node" ? { kind: "delivered" } : fateOfLeaving(packet, packet, facts), packet);
  const found = plan.loadBalancers.map((one) => foundIn(one, packet, place));
  const hit = found.find((one) => one !== undefined);
  if (options.record === "all") {
    for (const [index, one] of plan.loadBalancers.entries()) {
      if (found[index] === undefined && isNear(one, packet, place)) events.push(missOf(one, packet));
    }
  }
  if (hit === undefined) {
    const text = `no load balancer has ${packet.protocol} ${endText(packet.destination, packet.destinationPort)}`;
    events.push({ kind: "remark", text: [text, ...reasonsOf(plan, packet, place)].join(": ") });
    return { events, end: passedBy };
  }
  const match = (said: string): void => {
    events.push(matchOf(hit.loadBalancer, said), { kind: "remark", text: hit.loadBalancer.purpose });
  };
  if (packet.inInterface === "") {
    match(
      "not asked: HNS does not redirect packets of the node itself, which go on as they are (kubernetes/website #26465)",
    );
    return { events, end: passedBy };
  }
  if (packet.state !== "new") {
    match("HNS keeps connections in a table of flows, and goes on as it began");
    return {
      events,
      end: ended({ kind: "uncertain", because: "the endpoint of the connection's first packet" }, packet),
    };
  }
  match(choiceText(hit, packet));
  for (const text of behaviourWords(hit.loadBalancer, hit.mapping)) events.push({ kind: "remark", text });
  return { events, end: chosen(hit, plan, packet, options) };
}

function foundIn(loadBalancer: PlannedLoadBalancer, packet: Packet, place: Place): Found | undefined {
  const { family, frontendVips } = loadBalancer;
  if (family !== packet.family) return undefined;
  if (frontendVips.length === 0 ? place !== "node" : !frontendVips.includes(packet.destination)) return undefined;
  const mapping = loadBalancer.mappings.find(
    ({ protocol, externalPort }) =>
      protocolNameOfNumber(protocol) === packet.protocol && externalPort === packet.destinationPort,
  );
  return mapping && { loadBalancer, mapping };
}

/** Whether it has the packet's address, or the same port at the node: a trace leaves out the others, perhaps 10,000. */
function isNear({ family, frontendVips, mappings }: PlannedLoadBalancer, packet: Packet, place: Place): boolean {
  if (family !== packet.family) return false;
  if (frontendVips.length > 0) return frontendVips.includes(packet.destination);
  return place === "node" && mappings.some(({ externalPort }) => externalPort === packet.destinationPort);
}

/** `tcp 10.96.0.1:80`, `tcp *:30080` at the node's own address. */
function placeOf({ frontendVips: [vip], mappings: [mapping] }: PlannedLoadBalancer): string {
  const protocol = protocolNameOfNumber(mapping?.protocol) ?? `protocol ${mapping?.protocol ?? 0}`;
  const port = mapping?.externalPort ?? 0;
  return `${protocol} ${vip === undefined ? `*:${port}` : joinHostPort(vip, port)}`;
}

function matchOf(loadBalancer: PlannedLoadBalancer, said: string): TraceEvent {
  return { kind: "match", ...namedRule(loadBalancer), said };
}

function missOf(loadBalancer: PlannedLoadBalancer, packet: Packet): TraceEvent {
  const condition = `its place is ${placeOf(loadBalancer)}, ${loadBalancer.family}`;
  const observed = `the packet is for ${packet.protocol} ${endText(packet.destination, packet.destinationPort)}`;
  return { kind: "no-match", ...namedRule(loadBalancer), condition, observed };
}

function namedRule(loadBalancer: PlannedLoadBalancer) {
  const { text, purpose } = loadBalancer;
  const chain = `load balancer ${placeOf(loadBalancer)}`;
  return { chain, index: -1, rule: { text, comment: purpose, steps: [] } };
}

/** Why a frontend has no load balancer, if the plan says so. */
function reasonsOf({ unserved }: HostPlan, { protocol, destination, destinationPort = 0 }: Packet, place: Place) {
  const keys = [
    `${protocol} ${joinHostPort(destination, destinationPort)}`,
    ...(place === "node" ? [`${protocol} *:${destinationPort}`] : []),
  ];
  return keys.flatMap((key) => unserved.get(key) ?? []).slice(0, 1);
}

function choiceText({ loadBalancer, mapping }: Found, { source }: Packet): string {
  const { length } = loadBalancer.endpoints;
  if (length === 1) return "to its only endpoint";
  if (mapping.distribution === DISTRIBUTE_BY_SOURCE) return `one of ${length} endpoints, always the same for ${source}`;
  return `one of ${length} endpoints, by HNS, for each connection`;
}

function chosen({ loadBalancer, mapping }: Found, plan: HostPlan, packet: Packet, options: HostWalkOptions): TraceEnd {
  const { endpoints } = loadBalancer;
  const branches = endpoints.map((endpoint): Branch => {
    const node = atEndpoint(endpoint, loadBalancer, mapping, packet);
    return { odds: 1 / endpoints.length, label: labelOf(endpoint, mapping, plan), node };
  });
  const [only] = branches;
  if (only === undefined) return ended({ kind: "uncertain", because: "the load balancer has no endpoint" }, packet);
  const { random } = options;
  const one = branches.length === 1 ? only : random && (branches[Math.floor(random() * branches.length)] ?? only);
  // There are no events on the way to an endpoint.
  return one === undefined ? { kind: "fork", question: undefined, branches } : one.node.end;
}

function labelOf({ name, address }: PlannedEndpoint, { internalPort }: PortMapping, { remote }: HostPlan): string {
  if (address === undefined) return `the node itself (${name}), port ${internalPort}`;
  return `${joinHostPort(address, internalPort)}, a pod of ${remote.has(address) ? "another" : "this"} node`;
}

function atEndpoint(
  { address }: PlannedEndpoint,
  { flags, sourceVip }: PlannedLoadBalancer,
  { internalPort }: PortMapping,
  packet: Packet,
): TraceNode {
  const led = withDestination(packet, address ?? packet.destination, internalPort);
  const isKept = (flags & LB_DSR) !== 0 || address === undefined;
  const end = isKept ? led : sourceVip === undefined ? masqueraded(led, undefined) : withSource(led, sourceVip);
  return { events: [], end: ended({ kind: address === undefined ? "delivered" : "sent" }, end) };
}

const ended = (fate: Fate, packet: Packet): TraceEnd => ({ kind: "end", fate, packet, entries: [] });

// The meaning of flags for clients: reference windows.md §2.6.

const LOAD_BALANCER_BITS: readonly (readonly [bit: number, meaning: string])[] = [
  [LB_DSR, "direct server return, so the endpoint sees the client and answers it directly"],
  [LB_IPV6, "IPv6"],
];

const MAPPING_BITS: readonly (readonly [bit: number, meaning: string])[] = [
  [1, "internal"],
  [MAP_LOCAL_ROUTED_VIP, "at the node's own address"],
  [MAP_USE_MUX, "through the multiplexer of the host"],
  [MAP_PRESERVE_DIP, "the endpoint gets packets with the destination that the client asked for"],
  [MAP_EXTERNAL_IP, "for clients outside of the cluster"],
];

/** A sentence for each number of a document that has an effect. */
function behaviourWords(
  { flags, sourceVip }: LoadBalancerBehaviour,
  { distribution, flags: mappingFlags }: PortMapping,
): readonly string[] {
  return [
    ...bitWords("Flags", flags, LOAD_BALANCER_BITS),
    ...bitWords("flags of the port", mappingFlags, MAPPING_BITS),
    ...(distribution === DISTRIBUTE_BY_SOURCE
      ? ["DistributionType 2: all connections of a client have one endpoint"]
      : []),
    ...(sourceVip === undefined || (flags & LB_DSR) !== 0 ? [] : [`SourceVIP: the endpoint sees ${sourceVip}`]),
  ];
}

function bitWords(
  name: string,
  value: number,
  bits: readonly (readonly [bit: number, meaning: string])[],
): readonly string[] {
  if (value === 0) return [];
  const known = bits.filter(([bit]) => (value & bit) !== 0);
  const rest = known.reduce((left, [bit]) => left & ~bit, value);
  const words = known.map(([bit, meaning]) => `${bit} ${meaning}`);
  return [`${name} ${value}: ${[...words, ...(rest === 0 ? [] : [`${rest} not known`])].join("; ")}`];
}

/** An endpoint by its address or, for the node itself, by its name. */
interface PlannedEndpoint {
  readonly name: string;
  /** Undefined: the node. */
  readonly address: IpAddress | undefined;
}

interface PlannedLoadBalancer extends LoadBalancerBehaviour {
  readonly family: IpFamily;
  /** `shop/web:http cluster-ip tcp 10.96.0.10:80` */
  readonly purpose: string;
  /** The document. */
  readonly text: string;
  readonly endpoints: readonly PlannedEndpoint[];
}

interface HostPlan {
  readonly loadBalancers: readonly PlannedLoadBalancer[];
  /** Addresses for which an endpoint is created: pods of other nodes and, on an overlay, cluster IPs. */
  readonly remote: ReadonlySet<IpAddress>;
  readonly unserved: ReadonlyMap<string, string>;
}

const DOCUMENT = /^(HcnCreateEndpoint|HcnCreateLoadBalancer) (\{.*)$/;
const PLACEHOLDER = /^<ID of (.*)>$/;

const PLAN = /^(?:#.*\n)*HcnCreate(?:Endpoint|LoadBalancer) \{/;

/** @param name of the dump, for errors. @throws DumpError */
function readHostPlan(text: string, name: string): Omit<HostPlan, "unserved"> {
  const loadBalancers: PlannedLoadBalancer[] = [];
  const remote = new Set<IpAddress>();
  let purpose = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("# ")) purpose = line.slice(2);
    const [, call, document] = DOCUMENT.exec(line) ?? [];
    if (call === undefined || document === undefined) continue;
    try {
      if (call === "HcnCreateLoadBalancer") loadBalancers.push(readLoadBalancer(document, purpose));
      else for (const address of addressesIn(document)) remote.add(address);
    } catch (error) {
      throw new DumpError(`${name} is cut, or no JSON: ${error instanceof Error ? error.message : error}`);
    }
  }
  return { loadBalancers, remote };
}

function readLoadBalancer(text: string, purpose: string): PlannedLoadBalancer {
  const { endpoints, ...behaviour } = readLoadBalancerSettings(text);
  return {
    ...behaviour,
    family: familyOfLoadBalancer(behaviour),
    purpose,
    text,
    endpoints: endpoints.map((id) => {
      const name = PLACEHOLDER.exec(id)?.[1] ?? id;
      return { name, address: parseIpAddress(name) };
    }),
  };
}

function addressesIn(text: string): IpAddress[] {
  const configurations = listOf(objectOf(JSON.parse(text)).IpConfigurations);
  return configurations.flatMap((one) => parseIpAddress(textOf(objectOf(one).IpAddress)) ?? []);
}
