/**
 * What clients meet at a frontend of a service port, by their position: sends a packet of a typical client of each position through
 * the mode's plan (`trace`), and puts its fate into words.
 */
import { isDeepStrictEqual } from "node:util";
import { OUTSIDE, podInterface } from "../../contract/inspect/client-place.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { ModeWords } from "../../contract/mode-words.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { Frontend } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { ServicePortRouting } from "../../model/service-port-routing.ts";
import {
  addressAt,
  type Cidr,
  cidrContains,
  type IpAddress,
  type IpFamily,
  isLoopback,
  joinHostPort,
  narrowerCidr,
} from "../../net/ip.ts";
import { protocolName } from "../../net/protocol.ts";
import type { Outcome } from "../../trace/netfilter/tree.ts";
import type { PacketQuestion } from "../../trace/packet.ts";
import { type Encounter, POSITIONS, type Position } from "./explanation.ts";
import { reasonWords } from "./words.ts";

/** Facts about the clients of one family. */
export interface ClientFacts {
  /** Pod networks of this node, if known. */
  readonly podNetworks: readonly Cidr[];
  readonly otherNodes: readonly IpAddress[];
}

/** Sends a packet through the plan. */
export type Walk = (question: PacketQuestion) => Iterable<Outcome>;

export interface Asked {
  readonly frontend: Frontend;
  readonly port: ServicePort;
  readonly routing: ServicePortRouting;
  /** All endpoints of the service port. */
  readonly endpoints: readonly Endpoint[];
  readonly node: OfflineNode;
  readonly clients: ClientFacts;
  readonly words: ModeWords;
  readonly walk: Walk;
  /** The same node with pods that it detects; only if clusterCIDR is not known, and answers may depend on it. */
  readonly detecting?: Pick<Asked, "node" | "walk"> | undefined;
  /** Whether a frontend with an address has the port at this address of the node. */
  isTaken(address: IpAddress): boolean;
}

/** One client at a position. */
interface Client {
  readonly position: Position;
  readonly address: IpAddress;
  readonly inInterface: string | undefined;
  /** Whether it is in `loadBalancerSourceRanges`. */
  readonly isListed: boolean;
}

type Met = Omit<Encounter, "onlyListedSources" | "words">;

/** What clients at every position meet at one frontend. */
export function encountersAt({ detecting, ...asked }: Asked): Encounter[] {
  const met = (all: Asked) =>
    POSITIONS.map((position) => together(clientsAt(position, all).map((client) => metBy(client, all))));
  const here = met(asked);
  if (detecting === undefined) return here;
  const others = met({ ...asked, ...detecting });
  return here.map((one, index) => undecided(one, others[index] ?? one));
}

/** What holds for both, where the one or the other is met. */
function undecided(one: Encounter, other: Encounter): Encounter {
  if (isDeepStrictEqual(one, other)) return one;
  const { position, endpoints, onlyListedSources } = one;
  const isAlike = endpoints === other.endpoints && onlyListedSources === other.onlyListedSources;
  const isAnswered =
    isAlike && [one, other].every(({ outcome, reason }) => outcome === "answered" && reason === "policy");
  const met = isAnswered
    ? ({ position, outcome: "answered", endpoints, onlyListedSources } as const)
    : ({ position, outcome: "not-known", endpoints: undefined, onlyListedSources: false } as const);
  const encounter = { ...met, source: undefined, reason: "no-cluster-cidr" } as const;
  return { ...encounter, words: reasonWords(encounter) };
}

/** Combines what listed and unlisted clients meet. */
function together(all: readonly Met[]): Encounter {
  const [first, second] = all;
  const told = (met: Met, onlyListedSources = false): Encounter => {
    const encounter = { ...met, onlyListedSources };
    return { ...encounter, words: reasonWords(encounter) };
  };
  if (first === undefined) throw new RangeError("there is a client at every position");
  const isBarred = ({ reason }: Met): boolean => reason === "source-ranges";
  if (second === undefined || isBarred(first) === isBarred(second)) return told(first);
  return told(isBarred(first) ? second : first, first.outcome !== second.outcome);
}

/** One typical client; a listed and an unlisted one if the frontend has source ranges. */
function clientsAt(position: Position, asked: Asked): Client[] {
  const { node, clients, frontend } = asked;
  const { sources } = frontend;
  const isListed = (address: IpAddress) => sources.some((range) => cidrContains(range, address));
  if (position === "node") {
    return [{ position, address: node.nodeIP, inInterface: "", isListed: isListed(node.nodeIP) }];
  }
  const inInterface = position === "pod" ? podInterface(node) : "eth0";
  const taken = new Set<IpAddress>([...asked.endpoints.map(({ ip }) => ip), ...node.hostAddresses]);
  const all =
    position === "other-node" && clients.otherNodes.length > 0
      ? clients.otherNodes
      : position === "pod" && clients.podNetworks.length > 0
        ? clients.podNetworks.flatMap((network) => [
            ...sources.flatMap((range) => addressesIn(narrowerCidr(range, network))),
            ...addressesIn(network),
          ])
        : strangers(asked);
  const free = all.filter((address) => !taken.has(address));
  // All nodes may be endpoints, for example of the API server.
  const candidates = free.length > 0 ? free : [...all, ...STRANGERS[node.family]];
  const chosen =
    sources.length === 0 ? [candidates[0]] : [candidates.find(isListed), candidates.find((one) => !isListed(one))];
  return chosen.flatMap((address) =>
    address === undefined ? [] : [{ position, address, inInterface, isListed: isListed(address) }],
  );
}

/** Unknown clients: at addresses reserved for documentation (RFC 5737, RFC 3849), and in the source ranges. */
function strangers({ node, clients, frontend }: Asked): readonly IpAddress[] {
  const { detector } = node;
  const pods = [...clients.podNetworks, ...(detector.kind === "cidr" ? [detector.cidr] : [])];
  return [...STRANGERS[node.family], ...frontend.sources.flatMap(addressesIn)].filter(
    (address) => !pods.some((cidr) => cidrContains(cidr, address)) && !clients.otherNodes.includes(address),
  );
}

const STRANGERS: Readonly<Record<IpFamily, readonly IpAddress[]>> = {
  IPv4: [OUTSIDE.IPv4, "198.51.100.77", "192.0.2.77", "233.252.0.77"] as IpAddress[], // canonical literals
  IPv6: [OUTSIDE.IPv6, "2001:db8:7::77", "3fff::77"] as IpAddress[], // canonical literals
};

/** Some addresses of a network, rarely assigned ones first. */
function addressesIn(cidr: Cidr | undefined): readonly IpAddress[] {
  return cidr === undefined ? [] : [250, 251, 77, 2, 1].map((offset) => addressAt(cidr, offset));
}

/** The destination of a request to the frontend; for a node port, an address where no other frontend has the port. */
function placeOf({ frontend: { address, port }, node: { nodePortIPs, nodeIP, hostAddresses }, isTaken }: Asked) {
  const own = nodePortIPs.kind === "all" ? [nodeIP, ...hostAddresses] : nodePortIPs.ips;
  const free = own.find((one, index) => (index === 0 || !isLoopback(one)) && !isTaken(one));
  return { destination: address ?? free ?? own[0] ?? nodeIP, destinationPort: port };
}

/** What one client meets. */
function metBy(client: Client, asked: Asked): Met {
  const { position } = client;
  const { frontend, port, node, endpoints, walk } = asked;
  const { destination, destinationPort } = placeOf(asked);
  if (frontend.kind === "node-port" && asked.isTaken(destination)) {
    return { position, endpoints: undefined, source: undefined, outcome: "passed-by", reason: "other-frontend" };
  }
  const isHere = position === "pod" || position === "node";
  const outcomes = walk({
    family: node.family,
    protocol: protocolName(port.protocol),
    source: client.address,
    sourcePort: undefined,
    destination,
    destinationPort,
    inInterface: client.inInterface,
    origin: isHere ? "socket" : "elsewhere",
  });
  const served = new Set(endpoints.map(({ ip, port: number }) => joinHostPort(ip, number)));
  const reached: Outcome[] = [];
  let otherwise: Outcome["fate"] | undefined;
  for (const outcome of outcomes) {
    const { fate, packet } = outcome;
    const end = joinHostPort(packet.destination, packet.destinationPort ?? 0);
    const isSame = packet.destination === destination && packet.destinationPort === destinationPort;
    const isThere = (fate.kind === "sent" || fate.kind === "delivered") && !isSame && served.has(end);
    if (isThere) reached.push(outcome);
    else otherwise ??= fate;
  }
  const none = { position, endpoints: undefined, source: undefined } as const;
  if (reached.length === 0) return { ...none, ...unanswered(otherwise, client, asked) };
  const isUnlessBridged =
    otherwise !== undefined &&
    position === "pod" &&
    asked.words.notTaken(position, false, port.protocol) === "only-from-elsewhere";
  const lost = reached.filter(({ fate }) => fate.kind === "sent" && fate.isAnswerLost === true).length;
  if (lost === reached.length) return { ...none, outcome: "dropped", reason: "answers-lost" };
  return {
    position,
    outcome: "answered",
    endpoints: whichOf(reached, asked),
    source: sourceOf(reached, client, asked),
    reason: lost > 0 ? "answers-lost" : isUnlessBridged ? "not-by-bridge" : "policy",
  };
}

function unanswered(
  fate: Outcome["fate"] | undefined,
  { position, isListed }: Client,
  { frontend, routing, words, port: { protocol }, node: { nodePortIPs } }: Asked,
): Pick<Met, "outcome" | "reason"> {
  const { hasAny } = routing.categories;
  const isBarred = frontend.sources.length > 0 && !isListed;
  switch (fate?.kind) {
    case "refused":
      return { outcome: "refused", reason: hasAny ? "no-local-endpoint" : "no-endpoint" };
    case "dropped":
      return { outcome: "dropped", reason: isBarred ? "source-ranges" : "no-local-endpoint" };
    case "sent":
    case "delivered":
    case "not-led": {
      // At loopback addresses, the mode has a sentence of its own.
      const isNowhere =
        frontend.kind === "node-port" && nodePortIPs.kind === "ips" && nodePortIPs.ips.every(isLoopback);
      if (isNowhere) return { outcome: "passed-by", reason: "no-node-port-address" };
      const reason = words.notTaken(position, isBarred, protocol);
      const isLeft = reason === "protocol-not-served" && fate.kind === "delivered";
      return { outcome: "passed-by", reason: isLeft ? "left-to-the-node" : reason };
    }
    default:
      return { outcome: "passed-by", reason: "not-known" };
  }
}

function whichOf(reached: readonly Outcome[], { frontend, routing }: Asked): "all" | "local" {
  const local = new Set(routing.local.map(({ text }) => text));
  const found = new Set(reached.map(({ packet }) => joinHostPort(packet.destination, packet.destinationPort ?? 0)));
  return frontend.policy === "Local" && isDeepStrictEqual(found, local) ? "local" : "all";
}

/** Ignores an endpoint that connects to itself, which may see another address than the others. */
function sourceOf(
  reached: readonly Outcome[],
  { position, address }: Client,
  { frontend, node, words }: Asked,
): Encounter["source"] {
  const others = reached.filter(({ packet }) => packet.destination !== address);
  const [first] = others.length > 0 ? others : reached;
  if (first?.packet.isSourceTranslated !== false) return words.otherSource;
  const { source } = first.packet;
  return position === "node" && source === frontend.address && source !== node.nodeIP ? "service-address" : "kept";
}
