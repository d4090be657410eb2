/**
 * Why an endpoint of a service port is used or left out on this node: reason codes for the decisions of
 * `service-port-routing.ts`. They are never decided a second time here; this file only finds the reasons.
 */
import { isDrained, undrained } from "./cells.ts";
import type { Endpoint } from "./endpoint.ts";
import { type EndpointCategories, type NodeTopology, type TopologyMode, topologyMode } from "./service-port-routing.ts";

/** Why an endpoint is in the set of a policy, or not (reference endpoints.md §7). */
export type EndpointReason =
  /** Used: ready, and near enough. */
  | "ready"
  /** Used: terminating but still serving, and no endpoint is ready. */
  | "last-resort"
  /** Left out: its slice has weight 0. */
  | "drained"
  /** Left out: it does not answer connections of this node. */
  | "unanswered"
  /** Left out: not ready, and not terminating either. */
  | "not-ready"
  /** Left out: terminating and no longer serving. */
  | "terminated"
  /** Left out: terminating, and others are ready. */
  | "terminating"
  /** Left out: on another node, under the Local policy. */
  | "not-local"
  /** Left out: hinted for other zones. */
  | "other-zone"
  /** Left out: hinted for other nodes. */
  | "other-node";

/** How one policy uses an endpoint. */
export interface EndpointUse {
  readonly isUsed: boolean;
  readonly reason: EndpointReason;
}

/** One endpoint; undefined for a policy that the service port does not use. */
interface ReasonedEndpoint {
  readonly endpoint: Endpoint;
  readonly cluster: EndpointUse | undefined;
  readonly local: EndpointUse | undefined;
}

/** Why topology hints do not apply although some endpoint has one. */
export interface IgnoredHints {
  readonly kind: "zone" | "node";
  readonly why:
    | { readonly code: "missing"; readonly endpoint: Endpoint }
    | { readonly code: "none-for-us" }
    | { readonly code: "zone-unknown" };
}

/** The effect of topology hints on this node. */
export interface TopologyReason {
  readonly mode: TopologyMode;
  readonly ignored: readonly IgnoredHints[];
}

/** The reasons for a service port's endpoints, in order. @param all the endpoints that `categories` were made from. */
export function endpointReasons(
  all: readonly Endpoint[],
  categories: EndpointCategories,
  mode: TopologyMode,
): ReasonedEndpoint[] {
  const cluster = categories.cluster && new Set(categories.cluster);
  const local = categories.local && new Set(categories.local);
  return all.map((endpoint) => ({
    endpoint,
    cluster: cluster && useIn(cluster, endpoint, (one) => reasonAgainst(one) ?? hintedFor(mode)),
    local:
      local && useIn(local, endpoint, (one) => (one.isLocal ? (reasonAgainst(one) ?? "terminating") : "not-local")),
  }));
}

function useIn(
  used: ReadonlySet<Endpoint>,
  endpoint: Endpoint,
  whyNot: (endpoint: Endpoint) => EndpointReason,
): EndpointUse {
  if (!used.has(endpoint)) return { isUsed: false, reason: whyNot(endpoint) };
  return { isUsed: true, reason: endpoint.isReady ? "ready" : "last-resort" };
}

/** The reason to leave an endpoint out, apart from topology and locality. */
function reasonAgainst(endpoint: Endpoint): EndpointReason | undefined {
  const { isReady, isServing, isTerminating } = endpoint;
  if (isDrained(endpoint)) return "drained";
  if (endpoint.leftOut !== undefined) return "unanswered";
  if (isReady) return undefined;
  if (!isTerminating) return "not-ready";
  return isServing ? "terminating" : "terminated";
}

function hintedFor(mode: TopologyMode): EndpointReason {
  return mode.kind === "same-node" ? "other-node" : "other-zone";
}

/** Which hints apply here, and why others do not (reference endpoints.md §7.3). */
export function topologyReason(all: readonly Endpoint[], node: NodeTopology): TopologyReason {
  const offered = undrained(all);
  const mode = topologyMode(offered, node);
  const ready = offered.filter(({ isReady }) => isReady);
  const ignored: IgnoredHints[] = [];
  const judge = (kind: IgnoredHints["kind"], hintsOf: (endpoint: Endpoint) => readonly string[] | undefined) => {
    if (!ready.some((endpoint) => hintsOf(endpoint) !== undefined)) return;
    const bare = ready.find((endpoint) => hintsOf(endpoint) === undefined);
    if (bare !== undefined) ignored.push({ kind, why: { code: "missing", endpoint: bare } });
    else if (kind === "zone" && (node.zone ?? "") === "") ignored.push({ kind, why: { code: "zone-unknown" } });
    else ignored.push({ kind, why: { code: "none-for-us" } });
  };
  if (mode.kind !== "none") return { mode, ignored };
  judge("node", ({ nodeHints }) => nodeHints);
  judge("zone", ({ zoneHints }) => zoneHints);
  return { mode, ignored };
}
