/**
 * The addresses at which clients ask for a service port, in the order in which they are opened: reference userspace.md
 * §1.3. Pure.
 */
import { type Frontend, frontendKey, frontendsOf } from "../../model/frontend.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { ServicePortRouting } from "../../model/service-port-routing.ts";
import type { Cidr, IpAddress } from "../../net/ip.ts";

export interface Portal {
  readonly kind: Frontend["kind"];
  /** Undefined for a node port that answers on every address of the node. */
  readonly address: IpAddress | undefined;
  readonly port: number;
  /** Who may ask; empty means everybody. */
  readonly sources: readonly Cidr[];
  readonly policy: Frontend["policy"];
  readonly fate: Frontend["fate"];
  /** As {@link frontendKey} writes it. */
  readonly frontend: string;
}

/**
 * The portals of a service port, at the frontends that it owns. Upstream's userspace mode knew neither `nodePortAddresses` nor source ranges; here both
 * narrow what is opened.
 */
export function portalsOf(port: ServicePort, routing: ServicePortRouting, nodePortIPs: NodePortIPs): Portal[] {
  return frontendsOf(port, routing).flatMap((frontend): Portal[] => {
    const portal: Portal = { ...frontend, frontend: frontendKey(port.protocol, frontend) };
    if (frontend.kind !== "node-port" || nodePortIPs.kind === "all") return [portal];
    return nodePortIPs.ips.map((ip) => ({ ...portal, address: ip }));
  });
}
