/**
 * A service port has up to two lanes, each with the endpoints of one traffic policy: which one a client gets depends on the
 * frontend and on where the client is. Pure.
 */
import type { Portal } from "./portals.ts";

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
