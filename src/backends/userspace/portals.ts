/**
 * The addresses at which clients ask for a service port, in the order in which they are opened: reference legacy-modes.md
 * §1.3. Pure.
 */
import { frontEndText } from "../../model/front-ends.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { Cidr, IpAddress } from "../../net/ip.ts";

export type PortalKind = "cluster-ip" | "external-ip" | "load-balancer" | "node-port";

export interface Portal {
  readonly kind: PortalKind;
  /** Undefined for a node port that answers on every address of the node. */
  readonly address: IpAddress | undefined;
  readonly port: number;
  /** Who may ask; empty means everybody. */
  readonly sources: readonly Cidr[];
  /** What other service ports may claim as well: see `model/front-ends.ts`. */
  readonly frontEnd: string;
}

/**
 * The portals of a service port. Upstream's userspace mode knew neither `nodePortAddresses` nor source ranges; here both
 * narrow what is opened.
 */
export function portalsOf(port: ServicePort, nodePortIPs: NodePortIPs): Portal[] {
  const at = (
    kind: PortalKind,
    number: number,
    address: IpAddress | undefined,
    sources: readonly Cidr[] = [],
  ): Portal => {
    const claimed = kind === "node-port" ? undefined : address;
    return { kind, address, port: number, sources, frontEnd: frontEndText(port.protocol, claimed, number) };
  };
  const portals = [
    at("cluster-ip", port.port, port.clusterIP),
    ...port.externalIPs.map((ip) => at("external-ip", port.port, ip)),
    ...port.loadBalancerVIPs.map((ip) => at("load-balancer", port.port, ip, port.loadBalancerSourceRanges)),
  ];
  if (port.nodePort === 0) return portals;
  const nodeAddresses = nodePortIPs.kind === "all" ? [undefined] : nodePortIPs.ips;
  return [...portals, ...nodeAddresses.map((ip) => at("node-port", port.nodePort, ip))];
}
