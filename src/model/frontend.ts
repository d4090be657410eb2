/**
 * The frontends of a service port: its destinations and the fate of packets to each. Every mode plans from this list
 * (reference services.md §3.3, iptables.md §6, nftables.md §3.5).
 */

import { flatText } from "../net/compact.ts";
import { type Cidr, type IpAddress, joinHostPort } from "../net/ip.ts";
import { type Protocol, type ProtocolName, protocolName } from "../net/protocol.ts";
import type { ServicePort } from "./service-port.ts";
import type { ServicePortRouting } from "./service-port-routing.ts";

export type FrontendKind = "cluster-ip" | "load-balancer" | "external-ip" | "node-port";

/** A destination that a service port declares. */
export interface FrontendAddress {
  readonly kind: FrontendKind;
  /** Undefined for a node port, which uses the node's addresses. */
  readonly address: IpAddress | undefined;
  readonly port: number;
}

/** A destination that a service port owns. */
export interface Frontend extends FrontendAddress {
  /** The traffic policy for its clients. */
  readonly policy: "Cluster" | "Local";
  /** The allowed client addresses; empty: any. */
  readonly sources: readonly Cidr[];
  /** `drop`: usable endpoints exist, but the Local policy finds none here. `refuse`: there are none at all. */
  readonly fate: "serve" | "drop" | "refuse";
}

/** Identifies the destination: `tcp 10.96.0.1:443`, or `tcp *:30080` for a node port. */
export function frontendKey(protocol: Protocol, { address, port }: Pick<FrontendAddress, "address" | "port">): string {
  return frontendText(protocolName(protocol), address, port);
}

/** {@link frontendKey} from the values in rules. */
export function frontendText(protocol: ProtocolName, address: IpAddress | undefined, port: number): string {
  return flatText(protocol, " ", placeText({ address, port }));
}

/** `10.96.0.1:443`, or `*:30080` for a node port. */
export function placeText({ address, port }: { readonly address: string | null | undefined; readonly port: number }) {
  return address ? joinHostPort(address, port) : `*:${port}`;
}

/** All destinations that a service port declares, owned or not, in the order in which modes open them. */
export function declaredFrontends(port: ServicePort): FrontendAddress[] {
  const frontends: FrontendAddress[] = [{ kind: "cluster-ip", address: port.clusterIP, port: port.port }];
  for (const address of port.externalIPs) frontends.push({ kind: "external-ip", address, port: port.port });
  for (const address of port.loadBalancerVIPs) frontends.push({ kind: "load-balancer", address, port: port.port });
  if (port.nodePort !== 0) frontends.push({ kind: "node-port", address: undefined, port: port.nodePort });
  return frontends;
}

/** The addresses that a service port declares, beside those of the node. */
export function addressesOf({ clusterIP, externalIPs, loadBalancerVIPs }: ServicePort): readonly IpAddress[] {
  return externalIPs.length + loadBalancerVIPs.length === 0
    ? [clusterIP]
    : [clusterIP, ...externalIPs, ...loadBalancerVIPs];
}

/** The declared destinations without {@link ServicePort.lostFrontends}. */
export function ownedFrontends(port: ServicePort): FrontendAddress[] {
  const { protocol, lostFrontends } = port;
  const declared = declaredFrontends(port);
  if (lostFrontends === undefined) return declared;
  return declared.filter((frontend) => !lostFrontends.has(frontendKey(protocol, frontend)));
}

/** The owned frontends of a service port, with the routing decision for each. */
export function frontendsOf(port: ServicePort, routing: ServicePortRouting): Frontend[] {
  const { hasInternal, hasExternal } = routing;
  const unserved = routing.categories.hasAny ? "drop" : "refuse";
  return ownedFrontends(port).map(({ kind, address, port: number }) => {
    const isInternal = kind === "cluster-ip";
    const isLocal = isInternal ? port.internalPolicyLocal : port.externalPolicyLocal;
    return {
      kind,
      address,
      port: number,
      policy: isLocal ? "Local" : "Cluster",
      sources: kind === "load-balancer" ? port.loadBalancerSourceRanges : [],
      fate: (isInternal ? hasInternal : hasExternal) ? "serve" : unserved,
    };
  });
}

/** The lowest rank wins; within a rank, the first key in sort order. */
const PRECEDENCE: Readonly<Record<FrontendKind, number>> = {
  "cluster-ip": 0,
  "load-balancer": 1,
  "external-ip": 2,
  "node-port": 3,
};

/** Negative if `a` takes precedence over `b` at the same destination. */
export function comparePrecedence(a: FrontendKind, b: FrontendKind): number {
  return PRECEDENCE[a] - PRECEDENCE[b];
}

/**
 * Removes duplicate destinations, for kernel tables with one value for each. A Service may declare an address twice,
 * for example its cluster IP as an external IP; the kind with precedence wins, as between Services.
 *
 * @param frontends those of `port`.
 */
export function onePerDestination<F extends FrontendAddress>(port: ServicePort, frontends: readonly F[]): readonly F[] {
  if (port.externalIPs.length + port.loadBalancerVIPs.length === 0) return frontends;
  const chosen = new Map<string, F>();
  for (const frontend of frontends) {
    const key = frontendKey(port.protocol, frontend);
    const known = chosen.get(key);
    if (known === undefined || comparePrecedence(frontend.kind, known.kind) < 0) chosen.set(key, frontend);
  }
  return chosen.size === frontends.length ? frontends : [...chosen.values()];
}
