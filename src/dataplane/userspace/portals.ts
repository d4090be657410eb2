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
  /** Clients that may connect; empty: all. */
  readonly sources: readonly Cidr[];
  readonly policy: Frontend["policy"];
  readonly fate: Frontend["fate"];
  /** As {@link frontendKey} writes it. */
  readonly frontend: string;
}

/**
 * The portals of a service port, at the frontends that it owns. Upstream's userspace mode knew neither `nodePortAddresses` nor source
 * ranges; here both narrow what is opened.
 */
export function portalsOf(port: ServicePort, routing: ServicePortRouting, nodePortIPs: NodePortIPs): Portal[] {
  return frontendsOf(port, routing).flatMap((frontend): Portal[] => {
    const portal: Portal = { ...frontend, frontend: frontendKey(port.protocol, frontend) };
    if (frontend.kind !== "node-port" || nodePortIPs.kind === "all") return [portal];
    return nodePortIPs.ips.map((ip) => ({ ...portal, address: ip }));
  });
}

/** The endpoints of one traffic policy: which ones a client gets depends on the frontend and on where the client is. */
export type Lane = "cluster" | "local";
export const LANES: readonly Lane[] = ["cluster", "local"];

/** The balancer's name for a lane. @param key of the service port. */
export function laneKey(key: string, lane: Lane): string {
  return `${key} ${lane}`;
}

type Access = Pick<Portal, "kind" | "policy">;

/**
 * The lane of a client. A Local policy of the outside does not bind the node and its pods: they reach all endpoints.
 *
 * @param isInside whether the client is the node itself or one of the cluster's pods.
 */
export function laneOf({ kind, policy }: Access, isInside: boolean): Lane {
  if (policy === "Cluster") return "cluster";
  return kind === "cluster-ip" || !isInside ? "local" : "cluster";
}

/** All lanes that clients of these portals may get, with any endpoints. */
export function lanesOf(portals: readonly Access[]): ReadonlySet<Lane> {
  return new Set(portals.flatMap((portal) => [laneOf(portal, true), laneOf(portal, false)]));
}

/** Whether a client who gets this lane is served; the others are refused, or dropped when others are served. */
export function isServed({ fate, policy, kind }: Pick<Portal, "kind" | "policy" | "fate">, lane: Lane): boolean {
  if (fate === "serve") return true;
  return fate === "drop" && lane === "cluster" && policy === "Local" && kind !== "cluster-ip";
}

/** Whether anyone is served there. Pure. */
export function isOpen(portal: Pick<Portal, "kind" | "policy" | "fate">): boolean {
  return LANES.some((lane) => isServed(portal, lane));
}
