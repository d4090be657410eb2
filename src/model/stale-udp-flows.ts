/**
 * Which UDP flows of the connection tracking table go to an endpoint that no longer serves: reference sync.md §13.2,
 * steps 2 and 3. Dumping and deleting is done elsewhere.
 */
import { type IpAddress, joinHostPort } from "../net/ip.ts";
import type { UdpFlow } from "../net/udp-flow.ts";
import type { Endpoint } from "./endpoint.ts";
import { ownedFrontends } from "./frontend.ts";
import type { ServicePort } from "./service-port.ts";

/** `ip:port` of serving endpoints. */
type Serving = ReadonlySet<string>;

interface PortFrontends {
  readonly byAddress: Map<IpAddress, Serving>;
  /** Set when the port is a node port: any destination address then. */
  nodePort: Serving | undefined;
}

/** The addresses and ports that UDP services answer on, by destination port. */
export type UdpFrontends = ReadonlyMap<number, PortFrontends>;

/**
 * Collects the frontends of all UDP service ports that have a serving endpoint; where it is, readiness and policy do not
 * matter. A frontend has one owner, whose endpoints alone count. Pure; costs what the services given
 * cost, so hand in `ProxyState.udpServices`.
 */
export function udpFrontends(
  services: Iterable<ServicePort>,
  endpoints: ReadonlyMap<string, readonly Endpoint[]>,
): UdpFrontends {
  const frontends = new Map<number, PortFrontends>();
  for (const port of services) {
    if (port.protocol !== "UDP") continue;
    const serving = servingOf(endpoints.get(port.name.key));
    if (serving.size === 0) continue;
    for (const { address, port: number } of ownedFrontends(port)) {
      const onPort = frontendsOn(frontends, number);
      if (address === undefined) onPort.nodePort = unionOf(onPort.nodePort, serving);
      else onPort.byAddress.set(address, unionOf(onPort.byAddress.get(address), serving));
    }
  }
  return frontends;
}

/** Whether the flow goes to a frontend and is answered by none of its serving endpoints. Pure. */
export function isStale(frontends: UdpFrontends, flow: UdpFlow): boolean {
  const onPort = frontends.get(flow.destinationPort);
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

function frontendsOn(frontends: Map<number, PortFrontends>, port: number): PortFrontends {
  let found = frontends.get(port);
  if (found === undefined) {
    found = { byAddress: new Map(), nodePort: undefined };
    frontends.set(port, found);
  }
  return found;
}

function unionOf(known: Serving | undefined, more: Serving): Serving {
  return known === undefined || known === more ? more : new Set([...known, ...more]);
}
