/**
 * What a client meets where the host's own load balancers lead, as on Windows: there is one for each frontend that has endpoints, and
 * nothing for the others; it does not tell clients apart. Reference windows.md §2.6, windows-practice.md §8. Pure.
 */
import type { Encounter, Question } from "./reach.ts";

export function hostLoadBalancerEncounter({ frontend, port, routing, facts, position }: Question): Encounter {
  const none = {
    position,
    outcome: "passed-by",
    endpoints: undefined,
    source: undefined,
    onlyListedSources: false,
  } as const;
  if (position === "node") return { ...none, reason: "host-not-led" };
  const keepsDestination = port.preservesDestination === true;
  const isLocalOnly =
    frontend.policy === "Local" ||
    (keepsDestination && (frontend.kind === "node-port" || frontend.kind === "load-balancer"));
  const endpoints = isLocalOnly ? routing.local : routing.cluster;
  if (endpoints.length === 0) return { ...none, reason: "no-load-balancer" };
  // Where the endpoint answers the client directly, it sees who that is.
  const isDirect =
    frontend.kind === "cluster-ip"
      ? facts.answersDirectly
      : frontend.policy === "Local" || (keepsDestination && frontend.kind === "load-balancer");
  return {
    position,
    outcome: "answered",
    endpoints: isLocalOnly ? "local" : "all",
    source: isDirect ? "kept" : "host-or-source-vip",
    reason: "policy",
    onlyListedSources: false,
  };
}
