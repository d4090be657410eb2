/**
 * Why an endpoint of a service port is used on this node, or left out: what `endpoint-categories.ts` has decided, in codes. The
 * decision is taken from the categories and never made a second time; only its reason is looked for here. Pure.
 */
import type { Endpoint } from "./endpoint.ts";
import { type EndpointCategories, type NodeTopology, type TopologyMode, topologyMode } from "./endpoint-categories.ts";

/** Why an endpoint is in the set of a policy, or not (reference endpoints.md §7). */
export type EndpointReason =
  /** Used: ready, and near enough. */
  | "ready"
  /** Used: it terminates and still serves, and nothing better is there. */
  | "last-resort"
  /** Left out: not ready, and not terminating either. */
  | "not-ready"
  /** Left out: it terminates and no longer serves. */
  | "terminated"
  /** Left out: it terminates, and others are ready. */
  | "terminating"
  /** Left out: the Local policy, and it is on another node. */
  | "not-local"
  /** Left out: hinted for other zones. */
  | "other-zone"
  /** Left out: hinted for other nodes. */
  | "other-node";

/** What one policy makes of an endpoint. */
export interface EndpointUse {
  readonly isUsed: boolean;
  readonly reason: EndpointReason;
}

/** One endpoint; a policy that the service port does not use is undefined. */
interface ReasonedEndpoint {
  readonly endpoint: Endpoint;
  readonly cluster: EndpointUse | undefined;
  readonly local: EndpointUse | undefined;
}

/** Why topology hints do not count, though some endpoint has one. */
export interface IgnoredHints {
  readonly kind: "zone" | "node";
  readonly why:
    | { readonly code: "missing"; readonly endpoint: Endpoint }
    | { readonly code: "none-for-us" }
    | { readonly code: "zone-unknown" };
}

/** What topology hints do on this node. */
export interface TopologyReason {
  readonly mode: TopologyMode;
  readonly ignored: readonly IgnoredHints[];
}

/** The reasons for a service port's endpoints, in their order. @param all as `categories` were made of. */
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

/** The reason against an endpoint apart from topology and other nodes. */
function reasonAgainst({ isReady, isServing, isTerminating }: Endpoint): EndpointReason | undefined {
  if (isReady) return undefined;
  if (!isTerminating) return "not-ready";
  return isServing ? "terminating" : "terminated";
}

function hintedFor(mode: TopologyMode): EndpointReason {
  return mode.kind === "same-node" ? "other-node" : "other-zone";
}

/** Which hints count here, and why others do not (reference endpoints.md §7.3). */
export function topologyReason(all: readonly Endpoint[], node: NodeTopology): TopologyReason {
  const mode = topologyMode(all, node);
  const ready = all.filter(({ isReady }) => isReady);
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
