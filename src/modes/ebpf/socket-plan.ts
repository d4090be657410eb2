/**
 * What socket programs do for one service port. They take only what they can handle exactly; for everything else, the
 * rules of the packet path decide (reference ebpf.md §1.1, §1.4).
 */
import { inCells } from "../../model/cells.ts";
import { type Endpoint, keepsFlows } from "../../model/endpoint.ts";
import { type FrontendAddress, type FrontendKind, frontendsOf } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import type { IpAddress } from "../../net/ip.ts";

/**
 * What happens to a connection to a frontend at the socket. `pass`: nothing, the packet path decides. `leave`: the
 * same, but the map has the frontend, so that no node port with its number applies there. `refuse`: TCP is rejected and
 * datagrams pass; the map has this frontend too, so that its node port can be held. `cluster` and `local`: an endpoint
 * of that policy. `cluster-for-host`: the same for clients on the host's network, and `pass` for pods.
 */
export type Treatment = "pass" | "leave" | "refuse" | "cluster" | "cluster-for-host" | "local";

/** A service port's frontends of one kind are all treated alike. */
export interface SocketPlan {
  readonly treatments: Readonly<Record<FrontendKind, Treatment>>;
  /** Endpoints of the Cluster policy, each as often as it has cells (model/cells.ts); empty if no frontend uses them. */
  readonly cluster: readonly Endpoint[];
  /** The same for the Local policy; empty if no frontend uses them. */
  readonly local: readonly Endpoint[];
  /** Endpoints that keep their flows of datagrams, even if no longer offered: {@link keepsFlows}. */
  readonly serving: readonly Endpoint[];
}

export interface SocketPlanFacts {
  readonly nodeName: string;
  /** Undefined if the node has none. */
  readonly zone: string | undefined;
}

const NONE: readonly Endpoint[] = [];
const KINDS: readonly FrontendKind[] = ["cluster-ip", "external-ip", "load-balancer", "node-port"];

/** For ports that programs never look up. */
export const PASS_ALL: SocketPlan = {
  treatments: { "cluster-ip": "pass", "external-ip": "pass", "load-balancer": "pass", "node-port": "pass" },
  cluster: [],
  local: [],
  serving: [],
};

const textOf = (treatments: SocketPlan["treatments"]): string => KINDS.map((kind) => treatments[kind]).join();
const knownTreatments = new Map<string, SocketPlan["treatments"]>();

/** One object for all service ports with the same treatments: there are many ports and few combinations. */
function shared(treatments: SocketPlan["treatments"]): SocketPlan["treatments"] {
  const text = textOf(treatments);
  const known = knownTreatments.get(text) ?? treatments;
  knownTreatments.set(text, known);
  return known;
}

/** Whether any frontend of a service port has this treatment. */
function has(treatments: SocketPlan["treatments"], treatment: Treatment): boolean {
  return KINDS.some((kind) => treatments[kind] === treatment);
}

/** The packet path decides at the host's own addresses. @param own these addresses. */
export function treatmentOf(
  treatments: SocketPlan["treatments"],
  { kind, address }: FrontendAddress,
  own: ReadonlySet<IpAddress>,
): Treatment {
  return address !== undefined && own.has(address) ? "leave" : treatments[kind];
}

/** Plans one service port. @param endpoints all its endpoints; may be empty. */
export function planSocket(port: ServicePort, endpoints: readonly Endpoint[], facts: SocketPlanFacts): SocketPlan {
  if (port.protocol === "SCTP") return PASS_ALL;
  const routing = routeServicePort(port, endpoints, facts);
  const treatments: Record<FrontendKind, Treatment> = { ...PASS_ALL.treatments };
  for (const { kind, policy, sources, fate } of frontendsOf(port, routing)) {
    // The decision depends on the source, which a socket does not have yet.
    if (sources.length > 0) continue;
    const isLocal = policy === "Local";
    // A datagram to a node port may be an answer to a client with that source port: conntrack can tell, a socket cannot.
    const isAmbiguous = kind === "node-port" && port.protocol === "UDP";
    if (fate === "refuse" || isAmbiguous) treatments[kind] = "refuse";
    // So does the endpoint, if a hash of the source chooses it.
    else if (port.balancing !== undefined) continue;
    // Whether an external Local policy applies to a pod depends on its address, which the socket does not have yet.
    else if (kind !== "cluster-ip") treatments[kind] = isLocal ? "cluster-for-host" : "cluster";
    else if (fate === "serve") treatments[kind] = isLocal ? "local" : "cluster";
  }
  return {
    treatments: shared(treatments),
    cluster: has(treatments, "cluster") || has(treatments, "cluster-for-host") ? inCells(routing.cluster) : NONE,
    local: has(treatments, "local") ? inCells(routing.local) : NONE,
    serving: port.protocol === "UDP" ? endpoints.filter(keepsFlows) : NONE,
  };
}
