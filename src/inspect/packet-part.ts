/**
 * The service ports of a node that one packet can meet, so that a trace among 10,000 services plans a handful. Where what is shared
 * by all depends on which kinds of service ports there are, one of each kind is among them. Pure.
 */
import { declaredFrontends, frontendsOf } from "../model/frontend.ts";
import type { ServedState } from "../model/proxy-state.ts";
import type { ServicePort } from "../model/service-port.ts";
import { routeServicePort, type ServicePortRouting } from "../model/service-port-routing.ts";
import type { IpAddress } from "../net/ip.ts";
import type { OfflineNode } from "./offline-node.ts";

/** Where a packet goes, as it reaches the node. */
export interface PacketEnd {
  readonly destination: IpAddress;
  readonly port: number;
}

/**
 * The node with these service ports alone: those that have the destination as an address, an endpoint or a node port; those that
 * have an address or an endpoint in common with what these lead to; and one of each kind.
 */
export function partForPacket(node: OfflineNode, { destination, port }: PacketEnd): OfflineNode {
  const { state } = node;
  const chosen = portsAt(state, new Set([destination]), port);
  const reached = new Set<IpAddress>([destination]);
  for (const key of chosen.keys()) for (const { ip } of state.endpoints.get(key) ?? []) reached.add(ip);
  const services = new Map([...portsAt(state, reached, port), ...oneOfEachKind(node)]);
  const { endpoints, endpointCount, localReadyCounts } = state;
  // How many endpoints there are decides how large clusters are planned: that stays the number of the whole.
  return { ...node, state: { services, endpoints, endpointCount, localReadyCounts } };
}

function portsAt(state: ServedState, addresses: ReadonlySet<IpAddress>, port: number): Map<string, ServicePort> {
  const found = new Map<string, ServicePort>();
  for (const [key, one] of state.services) {
    const isFrontend = declaredFrontends(one).some(
      ({ address, port: own }) =>
        (address === undefined && own === port) || (address !== undefined && addresses.has(address)),
    );
    const isThere = isFrontend || one.healthCheckNodePort === port;
    if (isThere || state.endpoints.get(key)?.some(({ ip }) => addresses.has(ip)) === true) found.set(key, one);
  }
  return found;
}

/** The first of each kind, in the order of their keys. */
function oneOfEachKind({ state, name: nodeName, zone }: OfflineNode): Map<string, ServicePort> {
  const kinds = new Map<string, readonly [string, ServicePort]>();
  for (const [key, port] of state.services) {
    const routing = routeServicePort(port, state.endpoints.get(key) ?? [], { nodeName, zone });
    const kind = kindOf(port, routing);
    const known = kinds.get(kind);
    if (known === undefined || key < known[0]) kinds.set(kind, [key, port]);
  }
  return new Map(kinds.values());
}

/** Everything that can decide which sets and rules there are, and no address, name or port. */
function kindOf(port: ServicePort, routing: ServicePortRouting): string {
  const { categories, cluster, local } = routing;
  const frontends = frontendsOf(port, routing).map(({ kind, fate, policy, sources }) => [kind, fate, policy, sources]);
  return JSON.stringify([
    port.protocol,
    port.sessionAffinity,
    port.stickyMaxAgeSeconds,
    port.healthCheckNodePort !== 0,
    categories.hasAny,
    categories.reachable.map(({ isLocal }) => isLocal),
    cluster.length,
    local.length,
    frontends,
  ]);
}
