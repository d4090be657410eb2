/**
 * How a service port's endpoints route its traffic: which of them this node uses, by traffic policy, readiness and topology hints
 * (reference endpoints.md §7), and where traffic is refused or dropped. These decisions are the same in every proxy
 * mode (reference iptables.md §6, nftables.md §3.4).
 */
import { undrained } from "./cells.ts";
import type { Endpoint } from "./endpoint.ts";
import type { ServicePort } from "./service-port.ts";

export interface ServicePortRouting {
  readonly categories: EndpointCategories;
  /** Endpoints of the Cluster policy; empty if unused or if there are none. */
  readonly cluster: readonly Endpoint[];
  /** Endpoints of the Local policy; empty if unused or if there are none. */
  readonly local: readonly Endpoint[];
  /** External destinations exist, and some endpoint on any node can serve them. */
  readonly usesExternal: boolean;
  /** The cluster IP is served on this node; if not, it is dropped (other nodes have endpoints) or refused (none). */
  readonly hasInternal: boolean;
  /** External traffic is served on this node; if not, as for `hasInternal`. */
  readonly hasExternal: boolean;
  /** A Local policy has endpoints, but none on this node (metric `sync_proxy_rules_no_local_endpoints_total`). */
  readonly lacksLocal: { readonly internal: boolean; readonly external: boolean };
}

const LACKS_NOTHING: ServicePortRouting["lacksLocal"] = Object.freeze({ internal: false, external: false });

/** Routes one port. @param endpoints all its endpoints, sorted by text. */
export function routeServicePort(
  port: ServicePort,
  endpoints: readonly Endpoint[],
  node: NodeTopology,
): ServicePortRouting {
  const categories = categorizeEndpoints(endpoints, port, node);
  const { hasAny } = categories;
  const local = categories.local ?? NO_ENDPOINTS;
  const hasInternal = hasAny && (!port.internalPolicyLocal || local.length > 0);
  const hasExternal = hasAny && (!port.externalPolicyLocal || local.length > 0);
  return {
    categories,
    cluster: categories.cluster ?? NO_ENDPOINTS,
    local,
    usesExternal: hasAny && port.isExternallyAccessible,
    hasInternal,
    hasExternal,
    lacksLocal:
      !hasAny || (hasInternal && hasExternal) ? LACKS_NOTHING : { internal: !hasInternal, external: !hasExternal },
  };
}

/** The node's properties that categorisation uses. */
export interface NodeTopology {
  readonly nodeName: string;
  /** `undefined` or empty if the node has no zone. */
  readonly zone: string | undefined;
}

/** Every list keeps the order of the given endpoints. */
export interface EndpointCategories {
  /** Endpoints of the Cluster policy; `undefined` if the port does not use them. */
  readonly cluster: readonly Endpoint[] | undefined;
  /** Endpoints of the Local policy; `undefined` if the port does not use them. */
  readonly local: readonly Endpoint[] | undefined;
  /** All endpoints that traffic of this node may reach: the union of both, without duplicates. */
  readonly reachable: readonly Endpoint[];
  /** Some node has a usable endpoint: traffic to an empty set is then dropped, otherwise refused. */
  readonly hasAny: boolean;
}

/** Which hints apply to a service port on this node; `none`: all ready endpoints are equally near. */
export type TopologyMode =
  | { readonly kind: "none" }
  | { readonly kind: "same-node"; readonly node: string }
  | { readonly kind: "same-zone"; readonly zone: string };

const NO_TOPOLOGY: TopologyMode = { kind: "none" };
const NO_ENDPOINTS: readonly Endpoint[] = Object.freeze([]);

/** Whether the Cluster endpoint set is needed (services.md §3.4). */
export function usesClusterEndpoints(port: ServicePort): boolean {
  return !port.internalPolicyLocal || port.isExternallyAccessible;
}

/** Whether the Local endpoint set is needed (services.md §3.4). */
export function usesLocalEndpoints(port: ServicePort): boolean {
  return port.internalPolicyLocal || (port.externalPolicyLocal && port.isExternallyAccessible);
}

/**
 * Selects the endpoints of one service port that each policy uses on this node.
 *
 * @param endpoints sorted by text; `undefined` if there are none.
 */
export function categorizeEndpoints(
  endpoints: readonly Endpoint[] | undefined,
  port: ServicePort,
  node: NodeTopology,
): EndpointCategories {
  const all = undrained(endpoints ?? NO_ENDPOINTS);
  const mode = usesClusterEndpoints(port) ? topologyMode(all, node) : undefined;
  const cluster = mode === undefined ? undefined : answering(clusterEndpoints(all, mode));
  const local = usesLocalEndpoints(port) ? localEndpoints(all) : undefined;
  return {
    cluster,
    local: local?.endpoints,
    reachable: reachableEndpoints(all, cluster, local, mode),
    // The Cluster set is never empty while an endpoint is usable, so its size is enough if it exists.
    hasAny: cluster === undefined ? local !== undefined && all.some(isUsable) : cluster.length > 0,
  };
}

interface LocalSet {
  readonly endpoints: readonly Endpoint[];
  /** No local endpoint was ready: these are serving and terminating. */
  readonly isFallback: boolean;
}

/**
 * Without those that this node leaves out, unless it leaves out all. Last of all: who is silent changes neither hints nor fallbacks,
 * and no frontend loses its last endpoint.
 */
function answering(chosen: readonly Endpoint[]): readonly Endpoint[] {
  const rest = filterOrSame(chosen, ({ leftOut }) => leftOut === undefined);
  return rest.length > 0 ? rest : chosen;
}

/** Endpoints.md §7.4. */
function reachableEndpoints(
  all: readonly Endpoint[],
  cluster: readonly Endpoint[] | undefined,
  local: LocalSet | undefined,
  mode: TopologyMode | undefined,
): readonly Endpoint[] {
  if (local === undefined) return cluster ?? NO_ENDPOINTS;
  if (cluster === undefined) return local.endpoints;
  const clusterCoversLocal =
    mode?.kind === "none" && !local.isFallback && all.every(({ leftOut }) => leftOut === undefined);
  return clusterCoversLocal ? cluster : unionOf(all, cluster, local.endpoints);
}

/** Endpoints.md §7.1. Topology chooses among ready endpoints only; the terminating fallback ignores it. */
function clusterEndpoints(all: readonly Endpoint[], mode: TopologyMode): readonly Endpoint[] {
  const ready = filterOrSame(all, (endpoint) => endpoint.isReady && (mode.kind === "none" || isNear(endpoint, mode)));
  return ready.length > 0 ? ready : filterOrSame(all, isServingTerminating);
}

/** Endpoints.md §7.2. */
function localEndpoints(all: readonly Endpoint[]): LocalSet {
  const ready = filterOrSame(all, (endpoint) => endpoint.isLocal && endpoint.isReady);
  if (ready.length > 0) return { endpoints: answering(ready), isFallback: false };
  const fallback = filterOrSame(all, (endpoint) => endpoint.isLocal && isServingTerminating(endpoint));
  return { endpoints: answering(fallback), isFallback: fallback.length > 0 };
}

/** Endpoints.md §7.3: hints count only if every ready endpoint has one and at least one names this zone or node. @param all without drained ones. */
export function topologyMode(all: readonly Endpoint[], node: NodeTopology): TopologyMode {
  const zone = node.zone ?? "";
  let isNodeHinted = true;
  let isZoneHinted = true;
  let isForNode = false;
  let isForZone = false;
  for (const endpoint of all) {
    if (!endpoint.isReady) continue;
    if (endpoint.nodeHints === undefined) isNodeHinted = false;
    else isForNode ||= endpoint.nodeHints.includes(node.nodeName);
    if (endpoint.zoneHints === undefined) isZoneHinted = false;
    else isForZone ||= endpoint.zoneHints.includes(zone);
    if (!isNodeHinted && !isZoneHinted) return NO_TOPOLOGY;
  }
  if (isNodeHinted && isForNode && node.nodeName !== "") return { kind: "same-node", node: node.nodeName };
  if (isZoneHinted && isForZone && zone !== "") return { kind: "same-zone", zone };
  return NO_TOPOLOGY;
}

function isNear({ nodeHints, zoneHints }: Endpoint, mode: Exclude<TopologyMode, { kind: "none" }>): boolean {
  return (mode.kind === "same-node" ? nodeHints?.includes(mode.node) : zoneHints?.includes(mode.zone)) === true;
}

function isServingTerminating(endpoint: Endpoint): boolean {
  return endpoint.isServing && endpoint.isTerminating;
}

function isUsable(endpoint: Endpoint): boolean {
  return endpoint.isReady || isServingTerminating(endpoint);
}

/** Avoids a copy in the usual case, which keeps everything. */
function filterOrSame(all: readonly Endpoint[], keep: (endpoint: Endpoint) => boolean): readonly Endpoint[] {
  return all.every(keep) ? all : all.filter(keep);
}

/** Both sets are subsequences of `all`, so one pass finds the union in that order. */
function unionOf(all: readonly Endpoint[], a: readonly Endpoint[], b: readonly Endpoint[]): readonly Endpoint[] {
  let nextA = 0;
  let nextB = 0;
  return all.filter((endpoint) => {
    const isInA = endpoint === a[nextA];
    const isInB = endpoint === b[nextB];
    if (isInA) nextA++;
    if (isInB) nextB++;
    return isInA || isInB;
  });
}
