/**
 * The part of what a node serves that one packet can meet, so that a trace among 10,000 service ports plans a handful. Of what all
 * share there is one of each kind, and the others are counted (`other-ports.ts`).
 */
import type { Steps } from "../async/steps.ts";
import type { OfflineNode, OtherPort } from "../inspect/offline-node.ts";
import type { Endpoint } from "../model/endpoint.ts";
import type { ServicePort } from "../model/service-port.ts";
import type { IpAddress } from "../net/ip.ts";
import { FEW_OF_A_KIND, type PacketEnd } from "./packet-part.ts";
import { kindOfServed } from "./served-kind.ts";

/** A service port with what it had when the question came. */
interface Served {
  readonly port: ServicePort;
  readonly endpoints: readonly Endpoint[];
}

/** A kind of service ports. */
interface Kind {
  readonly first: ServicePort;
  /** The first ones. */
  readonly members: Served[];
}

/** So many service ports are looked at in one step. */
const STEP = 250;
const NO_ENDPOINTS: readonly Endpoint[] = [];

/**
 * The node with these service ports alone: those that have the destination as an address, an endpoint or a node port; those that have
 * an endpoint of these as their address, or its port as a node port, where packets are looked at once more on their way there; and one
 * of each kind.
 *
 * What the node serves may change between two steps: it is taken as it is at the first.
 */
export function* partOfServed(node: OfflineNode, end: PacketEnd): Steps<OfflineNode> {
  const { services, endpoints, endpointCount, localReadyCounts } = node.state;
  // In order, so that planners, who sort them, find them sorted.
  const all = [...services.keys()].sort().flatMap((key): Served | readonly Served[] => {
    const port = services.get(key);
    return port === undefined ? [] : { port, endpoints: endpoints.get(key) ?? NO_ENDPOINTS };
  });
  yield;
  const chosen = new Set<Served>();
  const next = new Set<IpAddress | number>();
  const kinds = new Map<string, Kind>();
  const kindOf: Kind[] = [];
  for (const [index, one] of all.entries()) {
    const isFrontend = answersAt(one.port, end);
    if (isFrontend) for (const { ip, port } of one.endpoints) next.add(ip).add(port);
    if (isFrontend || one.endpoints.some(({ ip }) => ip === end.destination)) chosen.add(one);
    const name = kindOfServed(one.port, one.endpoints, node);
    let kind = kinds.get(name);
    if (kind === undefined) {
      kind = { first: one.port, members: [] };
      kinds.set(name, kind);
    }
    if (kind.members.length < FEW_OF_A_KIND) kind.members.push(one);
    kindOf.push(kind);
    if (index % STEP === STEP - 1) yield;
  }
  for (const { members } of kinds.values()) {
    const isFew = end.showsEveryRule === true && members.length < FEW_OF_A_KIND;
    for (const one of isFew ? members : members.slice(0, 1)) chosen.add(one);
  }
  const part = new Map<string, ServicePort>();
  const partEndpoints = new Map<string, readonly Endpoint[]>();
  const others: OtherPort[] = [];
  for (const [index, one] of all.entries()) {
    const { port } = one;
    const { key, text } = port.name;
    const like = kindOf[index]?.first.name.key;
    if (like === undefined || chosen.has(one) || isAtOneOf(port, next)) {
      part.set(key, port);
      if (one.endpoints.length > 0) partEndpoints.set(key, one.endpoints);
    } else others.push({ key, text, like });
    if (index % STEP === STEP - 1) yield;
  }
  return { ...node, state: { services: part, endpoints: partEndpoints, endpointCount, localReadyCounts }, others };
}

function answersAt(port: ServicePort, end: PacketEnd): boolean {
  const { nodePort, healthCheckNodePort } = port;
  return nodePort === end.port || healthCheckNodePort === end.port || addressesOf(port).includes(end.destination);
}

function isAtOneOf(port: ServicePort, places: ReadonlySet<IpAddress | number>): boolean {
  const { nodePort, healthCheckNodePort } = port;
  if (places.has(nodePort) || places.has(healthCheckNodePort)) return true;
  return addressesOf(port).some((address) => places.has(address));
}

function addressesOf({ clusterIP, externalIPs, loadBalancerVIPs }: ServicePort): readonly IpAddress[] {
  if (externalIPs.length === 0 && loadBalancerVIPs.length === 0) return [clusterIP];
  return [clusterIP, ...externalIPs, ...loadBalancerVIPs];
}
