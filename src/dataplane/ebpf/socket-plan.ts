/**
 * What socket programs are told of one service port. Only what they can do exactly is theirs; everything else passes them, and the
 * rules of the packet path decide (reference ebpf.md §1.1, §1.4). Pure.
 */
import { type Endpoint, keepsFlows } from "../../model/endpoint.ts";
import { type FrontendAddress, type FrontendKind, frontendsOf } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import type { IpAddress } from "../../net/ip.ts";

/**
 * What a connection to a frontend meets at the socket. `pass`: nothing, the packet path decides. `leave`: the same, and the frontend is
 * known all the same, so that no node port of its number leads there. `refuse`: TCP is refused, and datagrams pass; it is known as well, so
 * that its node port can be held.
 * `cluster` and `local`: an endpoint of that policy. `cluster-for-host`: the same for clients on the host's network, and `pass` for pods.
 */
export type Treatment = "pass" | "leave" | "refuse" | "cluster" | "cluster-for-host" | "local";

/** All frontends of one kind of a service port are treated alike. */
export interface SocketPlan {
  readonly treatments: Readonly<Record<FrontendKind, Treatment>>;
  /** Endpoints of the Cluster policy; empty when no frontend is led to them. */
  readonly cluster: readonly Endpoint[];
  /** Endpoints of the Local policy; empty when no frontend is led to them. */
  readonly local: readonly Endpoint[];
  /** Endpoints with which a flow of datagrams stays, whether they are offered or not: {@link keepsFlows}. */
  readonly serving: readonly Endpoint[];
}

export interface SocketPlanFacts {
  readonly nodeName: string;
  /** Undefined when the node has none. */
  readonly zone: string | undefined;
}

const NONE: readonly Endpoint[] = [];
const KINDS: readonly FrontendKind[] = ["cluster-ip", "external-ip", "load-balancer", "node-port"];

/** For what programs never look for. */
export const PASS_ALL: SocketPlan = {
  treatments: { "cluster-ip": "pass", "external-ip": "pass", "load-balancer": "pass", "node-port": "pass" },
  cluster: [],
  local: [],
  serving: [],
};

const textOf = (treatments: SocketPlan["treatments"]): string => KINDS.map((kind) => treatments[kind]).join();
const knownTreatments = new Map<string, SocketPlan["treatments"]>();

/** One object for all service ports that are treated alike: there are few ways, and many service ports. */
function shared(treatments: SocketPlan["treatments"]): SocketPlan["treatments"] {
  const text = textOf(treatments);
  const known = knownTreatments.get(text) ?? treatments;
  knownTreatments.set(text, known);
  return known;
}

/** Whether a frontend of a service port is treated so. */
function has(treatments: SocketPlan["treatments"], treatment: Treatment): boolean {
  return KINDS.some((kind) => treatments[kind] === treatment);
}

/** The packet path decides at the host's own addresses. @param own these. Pure. */
export function treatmentOf(
  treatments: SocketPlan["treatments"],
  { kind, address }: FrontendAddress,
  own: ReadonlySet<IpAddress>,
): Treatment {
  return address !== undefined && own.has(address) ? "leave" : treatments[kind];
}

/** Plans one service port. @param endpoints all its endpoints; empty when it has none. */
export function planSocket(port: ServicePort, endpoints: readonly Endpoint[], facts: SocketPlanFacts): SocketPlan {
  if (port.protocol === "SCTP") return PASS_ALL;
  const routing = routeServicePort(port, endpoints, facts);
  const treatments: Record<FrontendKind, Treatment> = { ...PASS_ALL.treatments };
  for (const { kind, policy, sources, fate } of frontendsOf(port, routing)) {
    // Where the source of a connection decides, it is too early at the socket: it has no source yet.
    if (sources.length > 0) continue;
    const isLocal = policy === "Local";
    // A datagram to a node port may be an answer to a client that has this source port: conntrack knows, and a socket does not.
    const isAmbiguous = kind === "node-port" && port.protocol === "UDP";
    if (fate === "refuse" || isAmbiguous) treatments[kind] = "refuse";
    // Whether a Local policy of the outside binds a container is a question of its address, which a socket has not got yet.
    else if (kind !== "cluster-ip") treatments[kind] = isLocal ? "cluster-for-host" : "cluster";
    else if (fate === "serve") treatments[kind] = isLocal ? "local" : "cluster";
  }
  return {
    treatments: shared(treatments),
    cluster: has(treatments, "cluster") || has(treatments, "cluster-for-host") ? routing.cluster : NONE,
    local: has(treatments, "local") ? routing.local : NONE,
    serving: port.protocol === "UDP" ? endpoints.filter(keepsFlows) : NONE,
  };
}
