/**
 * The part of a node's service ports that one packet can meet, so that a trace among 10,000 service ports plans only a handful. For
 * shared chains and sets it keeps one service port of each kind, and counts the others (`OfflineNode.others`).
 */
import type { Steps } from "../../async/turns.ts";
import type { OfflineNode, OtherPort } from "../../contract/inspect/offline-node.ts";
import { inCells, isDrained } from "../../model/cells.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import { addressesOf, declaredFrontends, frontendKey } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import type { IpAddress } from "../../net/ip.ts";

/** The destination of a packet as it reaches the node. */
interface PacketEnd {
  readonly destination: IpAddress;
  readonly port: number;
  /** Whether short chains are shown rule by rule, which needs all members of small kinds. @default false */
  readonly showsEveryRule?: boolean;
}

/** Chains of this many rules are long; in shorter ones, each rule that fails is shown (`trace/iptables/ruleset.ts`). */
const FEW_OF_A_KIND = 16;

/** A service port with its endpoints at the time of the question. */
interface Served {
  readonly port: ServicePort;
  readonly endpoints: readonly Endpoint[];
}

/** How many service ports one step handles. */
const STEP = 250;
const NO_ENDPOINTS: readonly Endpoint[] = [];

/**
 * The node with only these service ports: those with the destination as an address, an endpoint or a node port; those with an endpoint
 * of these as their address, or its port as a node port, as rules see the packet again after translation; those that call an endpoint
 * of these local although these do not (a pod is on this node as soon as one slice says so); and one of each kind.
 *
 * The node's service ports may change between two steps: the state at the first step counts.
 */
export function* partForPacket(node: OfflineNode, end: PacketEnd): Steps<OfflineNode> {
  const { services, endpoints, endpointCount, localReadyCounts } = node.state;
  // Sorted, because planners sort them anyway.
  const all = [...services.keys()].sort().flatMap((key): Served | readonly Served[] => {
    const port = services.get(key);
    return port === undefined ? [] : { port, endpoints: endpoints.get(key) ?? NO_ENDPOINTS };
  });
  yield;
  const own = new Set([end.destination, end.port]);
  const chosen = new Set<Served>();
  const next = new Set<IpAddress | number>();
  const remote = new Set<IpAddress>();
  /** The first {@link FEW_OF_A_KIND} service ports that differ only in names, addresses and numbers; and for each port its own. */
  const kinds = new Map<string, Served[]>();
  const kindsOfAll: Served[][] = [];
  for (const [index, one] of all.entries()) {
    const isFrontend = isAtOneOf(one.port, own);
    if (isFrontend) {
      for (const { ip, port, isLocal } of one.endpoints) {
        next.add(ip).add(port);
        if (!isLocal) remote.add(ip);
      }
    }
    if (isFrontend || one.endpoints.some(({ ip }) => ip === end.destination)) chosen.add(one);
    const name = kindOf(one, node);
    const members = kinds.get(name) ?? [];
    if (members.length === 0) kinds.set(name, members);
    if (members.length < FEW_OF_A_KIND) members.push(one);
    kindsOfAll.push(members);
    if (index % STEP === STEP - 1) yield;
  }
  for (const members of kinds.values()) {
    const isFew = end.showsEveryRule === true && members.length < FEW_OF_A_KIND;
    for (const one of isFew ? members : members.slice(0, 1)) chosen.add(one);
  }
  const part = new Map<string, ServicePort>();
  const partEndpoints = new Map<string, readonly Endpoint[]>();
  const others: OtherPort[] = [];
  for (const [index, one] of all.entries()) {
    const { port } = one;
    const { key, text } = port.name;
    const like = kindsOfAll[index]?.[0]?.port.name.key;
    const saysLocal = one.endpoints.some(({ ip, isLocal }) => isLocal && remote.has(ip));
    if (like === undefined || chosen.has(one) || saysLocal || isAtOneOf(port, next)) {
      part.set(key, port);
      if (one.endpoints.length > 0) partEndpoints.set(key, one.endpoints);
    } else others.push({ key, text, like });
    if (index % STEP === STEP - 1) yield;
  }
  return { ...node, state: { services: part, endpoints: partEndpoints, endpointCount, localReadyCounts }, others };
}

function isAtOneOf(port: ServicePort, places: ReadonlySet<IpAddress | number>): boolean {
  const { nodePort, healthCheckNodePort } = port;
  if (places.has(nodePort) || places.has(healthCheckNodePort)) return true;
  return addressesOf(port).some((address) => places.has(address));
}

/**
 * Everything that can decide which chains and sets exist, and how many rules a service port has in each shared one. Service ports of
 * the same kind have the same there. Called for each of 10,000.
 */
function kindOf({ port, endpoints }: Served, { name, zone }: OfflineNode): string {
  const { categories, hasInternal, hasExternal, usesExternal } = routeServicePort(port, endpoints, {
    nodeName: name,
    zone,
  });
  let states = 0;
  for (const one of endpoints) states |= 1 << stateOf(one);
  const { cluster, local, hasAny } = categories;
  // The flat layout has chains for each number of cells.
  const cells = [cluster, local].map((some) => some && inCells(some).length).join(" ");
  const { externalPolicyLocal, internalPolicyLocal, isExternallyAccessible, preservesDestination, endTCP, balancing } =
    port;
  const { protocol, externalIPs, loadBalancerVIPs, nodePort, healthCheckNodePort } = port;
  const is = flags(
    ...[hasAny, hasInternal, hasExternal, usesExternal, nodePort !== 0, healthCheckNodePort !== 0],
    ...[externalPolicyLocal, internalPolicyLocal, isExternallyAccessible, preservesDestination === true],
  );
  const frontends = `${externalIPs.length} ${loadBalancerVIPs.length}`;
  const affinity = `${port.sessionAffinity} ${port.stickyMaxAgeSeconds}`;
  const chosen = `${endTCP ?? ""} ${balancing ?? ""}`;
  return `${protocol} ${is} ${cells} ${states} ${frontends} ${chosen} ${affinity} ${port.loadBalancerSourceRanges.join()}${lossesOf(port)}`;
}

/** From 0 to 31. Called for every endpoint. */
function stateOf(endpoint: Endpoint): number {
  const { isLocal, isReady, isServing, isTerminating } = endpoint;
  const drained = isDrained(endpoint) ? 16 : 0;
  return (isLocal ? 1 : 0) | (isReady ? 2 : 0) | (isServing ? 4 : 0) | (isTerminating ? 8 : 0) | drained;
}

function flags(...all: readonly boolean[]): number {
  let bits = 0;
  for (const [index, one] of all.entries()) if (one) bits |= 1 << index;
  return bits;
}

/** Which of its frontends belong to other service ports. A port that declares an address twice is a kind of its own. */
function lossesOf(port: ServicePort): string {
  const { lostFrontends } = port;
  const addresses = addressesOf(port);
  const own = addresses.length > 1 && new Set(addresses).size < addresses.length ? ` ${port.name.key}` : "";
  if (lostFrontends === undefined) return own;
  const lost = declaredFrontends(port).map((one) => (lostFrontends.has(frontendKey(port.protocol, one)) ? "-" : "+"));
  return ` ${lost.join("")}${own}`;
}
