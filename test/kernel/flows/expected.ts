/**
 * What a connection must meet, only from the packet table of reference iptables-operation.md §15: written for these
 * tests, so that it shares no code and no mistake with the planners.
 */
import type { Protocol } from "../../../src/net/protocol.ts";
import { bareAddress, client, clientPod, type DualAddress, nodeA, nodeB } from "../../../testkit/net/topology-spec.ts";
import { addressesOf, type Family, type ServingPod, servingPods } from "./cluster-objects.ts";
import { type Mode, traitsOf } from "./modes.ts";

export const DESTINATIONS = ["cluster IP", "node port", "external IP", "load balancer"] as const;
export type Destination = (typeof DESTINATIONS)[number];

/** `endpoint pod` is a pod that also serves: local-1. */
export const POSITIONS = ["pod", "endpoint pod", "node", "off-node client"] as const;
export type Position = (typeof POSITIONS)[number];

/** The namespace of each client. */
export const namespaceAt: Readonly<Record<Position, string>> = {
  pod: clientPod.name,
  "endpoint pod": servingPods["local-1"].name,
  node: nodeA.name,
  "off-node client": client.name,
};

const ownAddress: Readonly<Record<Position, DualAddress>> = {
  pod: clientPod,
  "endpoint pod": servingPods["local-1"],
  node: nodeA.lan,
  "off-node client": client.lan,
};

export type Policy = "Cluster" | "Local";

/** The deciding facts about a service; every endpoint is ready. */
export interface ServiceFacts {
  readonly external: Policy;
  readonly internal: Policy;
  readonly pods: readonly ServingPod[];
}

export type Expected =
  /** Every named pod answers now and then, and sees this source address. */
  | { readonly kind: "answers"; readonly peers: ReadonlyMap<ServingPod, string> }
  | { readonly kind: "refused" }
  /** A connection that is accepted and closed without an answer. */
  | { readonly kind: "closed" }
  | { readonly kind: "silence" }
  /** The proxy leaves the packets alone: no pod answers. */
  | { readonly kind: "nothing" };

function addressIn(family: Family, { ipv4, ipv6 }: DualAddress): string {
  return bareAddress(family === "IPv4" ? ipv4 : ipv6);
}

/** A client's own address. */
export function sourceAddress(position: Position, family: Family): string {
  return addressIn(family, ownAddress[position]);
}

/** The address that replaces a masqueraded one: that of the interface through which the node reaches the pod. */
export function masqueradeAddress(pod: ServingPod, family: Family): string {
  return addressIn(family, servingPods[pod].node === nodeB.name ? nodeA.lan : nodeA.bridge);
}

/** The outcome if these pods are to answer; `isKept` says whether they see the client's own address. */
export function answersOf(
  pods: readonly ServingPod[],
  isKept: boolean,
  position: Position,
  family: Family,
  keepsHairpin = false,
): Expected & { kind: "answers" } {
  const peers = pods.map((pod): [ServingPod, string] => {
    const isHairpin = !keepsHairpin && servingPods[pod].name === namespaceAt[position];
    const peer = isKept && !isHairpin ? sourceAddress(position, family) : masqueradeAddress(pod, family);
    return [pod, peer];
  });
  return { kind: "answers", peers: new Map(peers) };
}

/** Which client requests what, and how. */
export interface Question {
  readonly to: Destination;
  readonly from: Position;
  readonly family: Family;
  readonly protocol: Protocol;
  /** The service's: its addresses follow from it. */
  readonly number: number;
}

/** The cell of the table. */
export function expected(mode: Mode, service: ServiceFacts, question: Question): Expected {
  const { to, from, family, protocol } = question;
  if (traitsOf[mode].hasVirtualServers === true) return expectedOfVirtualServer(service, question);
  if (service.pods.length === 0) {
    const isForeign = to === "external IP" || to === "load balancer";
    const isRefused = from !== "node" || !isForeign || traitsOf[mode].refusesNodeAtExternalAddresses;
    return { kind: isRefused ? "refused" : "nothing" };
  }
  const { carriesTraffic } = traitsOf[mode];
  if (carriesTraffic && to === "external IP" && from !== "off-node client") return { kind: "nothing" };
  const isPod = from === "pod" || from === "endpoint pod";
  const isInternal = to === "cluster IP";
  const policy = isInternal ? service.internal : service.external;
  // Inside the node, an external Local policy does not restrict: pods and the node reach the whole cluster.
  const isRestricted = policy === "Local" && (isInternal || from === "off-node client");
  const pods = isRestricted ? service.pods.filter((pod) => servingPods[pod].node === nodeA.name) : service.pods;
  if (pods.length === 0) return { kind: "silence" };
  const isKept = isInternal ? isPod : policy === "Local" && from !== "node";
  // An endpoint that is chosen at a pod's socket sees the pod's address, also the pod itself (reference ebpf.md §1.4).
  if (isPod && isDecidedAtSocket(mode, service.external, to, protocol))
    return answersOf(pods, true, from, family, true);
  return answersOf(pods, isKept && !carriesTraffic, from, family);
}

/**
 * Whether a pod's endpoint is chosen before it sends anything: not where its address decides (an external Local
 * policy), and not for datagrams to a node port, which may be answers to a client with that source port.
 */
export function isDecidedAtSocket(mode: Mode, external: Policy, to: Destination, protocol: Protocol): boolean {
  if (!traitsOf[mode].decidesAtSocket.includes(protocol)) return false;
  return to === "cluster IP" || (external === "Cluster" && (to !== "node port" || protocol === "TCP"));
}

/** Reference ipvs.md §3, §4 and §7. */
function expectedOfVirtualServer(service: ServiceFacts, { to, from, family, number }: Question): Expected {
  if (service.pods.length === 0) return { kind: "refused" };
  const isInternal = to === "cluster IP";
  const isLocal = (isInternal ? service.internal : service.external) === "Local";
  const here = service.pods.filter((pod) => servingPods[pod].node === nodeA.name);
  const pods = isLocal && here.length > 0 ? here : service.pods;
  const isPod = from === "pod" || from === "endpoint pod";
  if (isInternal) return answersOf(pods, isPod, from, family);
  if (!isLocal) return answersOf(pods, false, from, family);
  // Nothing is masqueraded: pods elsewhere answer past the node, or to an address of the service, which they cannot reach.
  const isVip = to !== "node port";
  if (here.length === 0 && (from === "off-node client" || (from === "node" && isVip))) return { kind: "silence" };
  if (from !== "node" || !isVip) return answersOf(pods, true, from, family);
  const own = addressesOf(number)[to][family];
  return { kind: "answers", peers: new Map(pods.map((pod): [ServingPod, string] => [pod, own])) };
}
