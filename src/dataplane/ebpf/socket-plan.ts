/**
 * What socket programs are told of one service port. Only what they can do exactly is theirs; everything else passes them, and the
 * rules of the packet path decide (reference ebpf.md §1.1, §1.4). Pure.
 */
import type { Endpoint } from "../../model/endpoint.ts";
import { type FrontendAddress, type FrontendKind, frontendsOf, ownedFrontends } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import type { IpAddress } from "../../net/ip.ts";

/**
 * What a connection to a frontend meets at the socket. `pass`: nothing, the packet path decides. `refuse`: there are no endpoints.
 * `cluster` and `local`: an endpoint of that policy.
 */
export type Treatment = "pass" | "refuse" | "cluster" | "local";

/** All frontends of one kind of a service port are treated alike. */
export interface SocketPlan {
  readonly treatments: Readonly<Record<FrontendKind, Treatment>>;
  /** Endpoints of the Cluster policy; empty when no frontend is led to them. */
  readonly cluster: readonly Endpoint[];
  /** Endpoints of the Local policy; empty when no frontend is led to them. */
  readonly local: readonly Endpoint[];
}

export interface SocketPlanFacts {
  readonly nodeName: string;
  /** Undefined when the node has none. */
  readonly zone: string | undefined;
}

const PASS_ALL: SocketPlan = {
  treatments: { "cluster-ip": "pass", "external-ip": "pass", "load-balancer": "pass", "node-port": "pass" },
  cluster: [],
  local: [],
};

/** Plans one service port. @param endpoints all its endpoints; empty when it has none. */
export function planSocket(port: ServicePort, endpoints: readonly Endpoint[], facts: SocketPlanFacts): SocketPlan {
  if (port.protocol !== "TCP" || port.sessionAffinity !== "None") return PASS_ALL;
  const routing = routeServicePort(port, endpoints, facts);
  const treatments: Record<FrontendKind, Treatment> = { ...PASS_ALL.treatments };
  for (const { kind, policy, sources, fate } of frontendsOf(port, routing)) {
    // Where the source of a connection decides, it is too early at the socket: it has no source yet.
    if (kind === "node-port" || sources.length > 0 || fate === "drop") continue;
    if (fate === "refuse") treatments[kind] = "refuse";
    else if (kind === "cluster-ip") treatments[kind] = policy === "Local" ? "local" : "cluster";
    else if (policy === "Cluster") treatments[kind] = "cluster";
  }
  const used = new Set(Object.values(treatments));
  return {
    treatments,
    cluster: used.has("cluster") ? routing.cluster : [],
    local: used.has("local") ? routing.local : [],
  };
}

/** A frontend that has an address of its own. */
export type AddressedFrontend = FrontendAddress & { readonly address: IpAddress };

/** The frontends of a service port that can be in the maps. */
export function addressedFrontends(port: ServicePort): readonly AddressedFrontend[] {
  return ownedFrontends(port).filter((frontend): frontend is AddressedFrontend => frontend.address !== undefined);
}
