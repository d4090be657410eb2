/**
 * What the programs at interfaces are told of one service port. They meet packets of clients outside of the node; packets of pods pass
 * them, and so does everything that they cannot do exactly (reference ebpf.md §2.3). Pure.
 */
import type { Endpoint } from "../../model/endpoint.ts";
import { type FrontendKind, frontendsOf } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import { has, PASS_ALL, type SocketPlan, type SocketPlanFacts, shared, type Treatment } from "./socket-plan.ts";

export interface PacketPlanFacts extends SocketPlanFacts {
  readonly masqueradesAll: boolean;
}

/** Plans one service port. What has no endpoint here is refused or dropped by the rules. @param endpoints all its endpoints. */
export function planPackets(port: ServicePort, endpoints: readonly Endpoint[], facts: PacketPlanFacts): SocketPlan {
  if (port.protocol === "SCTP") return PASS_ALL;
  const routing = routeServicePort(port, endpoints, facts);
  const treatments: Record<FrontendKind, Treatment> = { ...PASS_ALL.treatments };
  for (const { kind, policy, sources, fate } of frontendsOf(port, routing)) {
    if (sources.length > 0 || fate !== "serve") continue;
    const to = policy === "Local" ? "local" : "cluster";
    treatments[kind] = isMasqueraded(kind, policy, facts) ? `masqueraded-${to}` : to;
  }
  return {
    treatments: shared(treatments),
    cluster: has(treatments, "cluster") || has(treatments, "masqueraded-cluster") ? routing.cluster : [],
    local: has(treatments, "local") || has(treatments, "masqueraded-local") ? routing.local : [],
  };
}

/** Of a client that is no pod. Where pods cannot be told from others, a cluster IP is taken for theirs (reference nftables.md §3.3). */
function isMasqueraded(
  kind: FrontendKind,
  policy: "Cluster" | "Local",
  { detectsPods, masqueradesAll }: PacketPlanFacts,
): boolean {
  return kind === "cluster-ip" ? detectsPods || masqueradesAll : policy === "Cluster";
}
