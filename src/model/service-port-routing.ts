/**
 * How a service port's endpoints route its traffic: which sets are used, and where traffic is refused or dropped. These
 * decisions are the same in every proxy mode (reference iptables.md §6, nftables.md §3.4).
 */
import type { Endpoint } from "./endpoint.ts";
import { categorizeEndpoints, type EndpointCategories, type NodeTopology } from "./endpoint-categories.ts";
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

const NONE: readonly Endpoint[] = Object.freeze([]);
const LACKS_NOTHING: ServicePortRouting["lacksLocal"] = Object.freeze({ internal: false, external: false });

/** Routes one port. @param endpoints all its endpoints, sorted by text. */
export function routeServicePort(
  port: ServicePort,
  endpoints: readonly Endpoint[],
  node: NodeTopology,
): ServicePortRouting {
  const categories = categorizeEndpoints(endpoints, port, node);
  const { hasAny } = categories;
  const local = categories.local ?? NONE;
  const hasInternal = hasAny && (!port.internalPolicyLocal || local.length > 0);
  const hasExternal = hasAny && (!port.externalPolicyLocal || local.length > 0);
  return {
    categories,
    cluster: categories.cluster ?? NONE,
    local,
    usesExternal: hasAny && port.isExternallyAccessible,
    hasInternal,
    hasExternal,
    lacksLocal:
      !hasAny || (hasInternal && hasExternal) ? LACKS_NOTHING : { internal: !hasInternal, external: !hasExternal },
  };
}
