/**
 * Which UDP flows of the connection tracking table go to an endpoint that no longer serves: reference core.md §13.2,
 * steps 2 and 3. Dumping and deleting is done elsewhere.
 */
import { type IpAddress, joinHostPort } from "../net/ip.ts";
import type { UdpFlow } from "../sync/observers.ts";
import type { Endpoint } from "./endpoint.ts";
import type { ServicePort } from "./service-port.ts";

/** `ip:port` of serving endpoints. */
type Serving = ReadonlySet<string>;

interface PortFrontEnds {
  readonly byAddress: Map<IpAddress, Serving>;
  /** Set when the port is a node port: any destination address then. */
  nodePort: Serving | undefined;
}

/** The addresses and ports that UDP services answer on, by destination port. */
export type UdpFrontEnds = ReadonlyMap<number, PortFrontEnds>;

/**
 * Collects the front ends of all UDP service ports that have a serving endpoint; where, ready and whatever policy do not
 * matter. Front ends that two services claim are served by the endpoints of both. Pure; costs what the services given
 * cost, so hand in `ProxyState.udpServices`.
 */
export function udpFrontEnds(
  services: Iterable<ServicePort>,
  endpoints: ReadonlyMap<string, readonly Endpoint[]>,
): UdpFrontEnds {
  const frontEnds = new Map<number, PortFrontEnds>();
  for (const port of services) {
    if (port.protocol !== "UDP") continue;
    const serving = servingOf(endpoints.get(port.name.key));
    if (serving.size === 0) continue;
    const { byAddress } = frontEndsOf(frontEnds, port.port);
    for (const address of [port.clusterIP, ...port.loadBalancerVIPs, ...port.externalIPs]) {
      byAddress.set(address, unionOf(byAddress.get(address), serving));
    }
    if (port.nodePort === 0) continue;
    const onNode = frontEndsOf(frontEnds, port.nodePort);
    onNode.nodePort = unionOf(onNode.nodePort, serving);
  }
  return frontEnds;
}

/** Whether the flow goes to a front end and is answered by none of its serving endpoints. Pure. */
export function isStale(frontEnds: UdpFrontEnds, flow: UdpFlow): boolean {
  const onPort = frontEnds.get(flow.destinationPort);
  if (onPort === undefined) return false;
  const serving = onPort.byAddress.get(flow.destinationIP);
  if (serving === undefined && onPort.nodePort === undefined) return false;
  const replier = joinHostPort(flow.replySourceIP, flow.replySourcePort);
  return serving?.has(replier) === false || onPort.nodePort?.has(replier) === false;
}

function servingOf(endpoints: readonly Endpoint[] | undefined): Serving {
  const serving = new Set<string>();
  for (const endpoint of endpoints ?? []) {
    if (endpoint.isServing) serving.add(endpoint.text);
  }
  return serving;
}

function frontEndsOf(frontEnds: Map<number, PortFrontEnds>, port: number): PortFrontEnds {
  let found = frontEnds.get(port);
  if (found === undefined) {
    found = { byAddress: new Map(), nodePort: undefined };
    frontEnds.set(port, found);
  }
  return found;
}

function unionOf(known: Serving | undefined, more: Serving): Serving {
  return known === undefined || known === more ? more : new Set([...known, ...more]);
}
