/**
 * The addresses at which clients reach a service port, in the order of opening: reference userspace.md §1.3.
 */
import { type Frontend, frontendKey, frontendsOf } from "../../model/frontend.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { ServicePortRouting } from "../../model/service-port-routing.ts";
import type { Cidr, IpAddress } from "../../net/ip.ts";

export interface Portal {
  readonly kind: Frontend["kind"];
  /** Undefined for a node port at all addresses of the node. */
  readonly address: IpAddress | undefined;
  readonly port: number;
  /** Clients that may connect; empty: all. */
  readonly sources: readonly Cidr[];
  readonly policy: Frontend["policy"];
  readonly fate: Frontend["fate"];
  /** Its {@link frontendKey}. */
  readonly frontend: string;
}

/**
 * The portals of a service port, at the frontends that it owns. They respect `nodePortAddresses` and source ranges,
 * which upstream's userspace mode ignored.
 */
export function portalsOf(port: ServicePort, routing: ServicePortRouting, nodePortIPs: NodePortIPs): Portal[] {
  return frontendsOf(port, routing).flatMap((frontend): Portal[] => {
    const portal: Portal = { ...frontend, frontend: frontendKey(port.protocol, frontend) };
    if (frontend.kind !== "node-port" || nodePortIPs.kind === "all") return [portal];
    return nodePortIPs.ips.map((ip) => ({ ...portal, address: ip }));
  });
}

/** The endpoints of one traffic policy: the frontend and the client's place decide which ones a client gets. */
export type Lane = "cluster" | "local";
export const LANES: readonly Lane[] = ["cluster", "local"];

/** The balancer's name for a lane. @param key of the service port. */
export function laneKey(key: string, lane: Lane): string {
  return `${key} ${lane}`;
}

type Access = Pick<Portal, "kind" | "policy">;

/**
 * The lane of a client. An external Local policy does not apply to the node and its pods, which reach all endpoints.
 *
 * @param isInside whether the client is the node itself or one of the cluster's pods.
 */
export function laneOf({ kind, policy }: Access, isInside: boolean): Lane {
  if (policy === "Cluster") return "cluster";
  return kind === "cluster-ip" || !isInside ? "local" : "cluster";
}

/** All lanes that clients of these portals may get, with or without endpoints. */
export function lanesOf(portals: readonly Access[]): ReadonlySet<Lane> {
  return new Set(portals.flatMap((portal) => [laneOf(portal, true), laneOf(portal, false)]));
}

/** Whether clients of this lane are served; the others are refused, or dropped if some clients are served. */
export function isServed({ fate, policy, kind }: Pick<Portal, "kind" | "policy" | "fate">, lane: Lane): boolean {
  if (fate === "serve") return true;
  return fate === "drop" && lane === "cluster" && policy === "Local" && kind !== "cluster-ip";
}

/** Whether any client is served there. */
export function isOpen(portal: Pick<Portal, "kind" | "policy" | "fate">): boolean {
  return LANES.some((lane) => isServed(portal, lane));
}
