/** What decided which endpoints a service port uses on a node, one sentence for each thing that had a say. Pure. */
import type { ModeTraits } from "../dataplane/traits.ts";
import type { TopologyReason } from "../model/endpoint-reasons.ts";
import type { ServicePort } from "../model/service-port.ts";
import type { ServicePortRouting } from "../model/service-port-routing.ts";
import type { ExplainedEndpoint, ExplainedFrontend, Policies } from "./explanation.ts";
import type { ClientFacts } from "./reach.ts";
import { topologyWords } from "./words.ts";

interface Decided {
  readonly traits: ModeTraits;
  readonly clients: ClientFacts;
  readonly port: ServicePort;
  readonly routing: ServicePortRouting;
  readonly topology: TopologyReason;
  readonly zone: string | undefined;
  readonly policies: Policies;
  readonly endpoints: readonly ExplainedEndpoint[];
  readonly frontends: readonly ExplainedFrontend[];
  /** How an endpoint is chosen among several. */
  readonly choice: string;
}

export function decisionWords(decided: Decided): string[] {
  return [
    ...endpointSentences(decided),
    ...policySentences(decided),
    ...choiceSentences(decided),
    ...ownershipSentences(decided),
  ];
}

function endpointSentences({ endpoints, routing, topology, zone, traits }: Decided): string[] {
  const fate = traits.hasHostLoadBalancers ? "there is no load balancer for it" : "its clients are refused";
  if (endpoints.length === 0) return [`The service port has no endpoints: ${fate}.`];
  if (!routing.categories.hasAny) {
    const whose = endpoints.length === 1 ? "Its only endpoint is" : `None of its ${endpoints.length} endpoints is`;
    const state = endpoints.length === 1 ? "neither ready, nor does it still serve" : "ready or still serves";
    return [`${whose} ${state}: ${fate}.`];
  }
  const words = topologyWords(topology, zone);
  if (!endpoints.some(({ state }) => state === "ready")) {
    words.push("No endpoint is ready: those that terminate but still serve are used.");
  }
  return words;
}

function policySentences({ port, policies, routing, traits }: Decided): string[] {
  const words: string[] = [];
  const local = counted(routing.local.length, "usable endpoint");
  if (policies.internal === "Local") {
    words.push(
      `internalTrafficPolicy is Local: the cluster IP leads to endpoints of this node only, which has ${local}.`,
    );
  }
  if (port.isExternallyAccessible && policies.external === "Local") {
    const whom = traits.hasVirtualServers || traits.hasHostLoadBalancers ? "" : "from outside, ";
    const source = traits.carriesTraffic ? "" : "; clients keep their address";
    words.push(
      `externalTrafficPolicy is Local: ${whom}only endpoints of this node answer, which has ${local}${source}.`,
    );
  }
  if (policies.sourceRanges.length > 0 && port.loadBalancerVIPs.length > 0) {
    words.push(
      traits.hasHostLoadBalancers
        ? "loadBalancerSourceRanges has no effect: load balancers of the host do not tell clients apart."
        : `Load-balancer addresses are for clients in ${policies.sourceRanges.join(", ")} only.`,
    );
  }
  if (policies.healthCheckNodePort !== 0) {
    const { localReady } = policies;
    const answer = localReady > 0 ? "200" : "503";
    words.push(
      `The load balancer's health check at node port ${policies.healthCheckNodePort} gets ${answer}: ${counted(localReady, "ready endpoint")} here.`,
    );
  }
  return words;
}

function choiceSentences({ policies, port, choice, routing, traits, clients }: Decided): string[] {
  const words: string[] = [];
  if (routing.categories.reachable.length > 1) words.push(`Among several endpoints one is chosen ${choice}.`);
  if (policies.sessionAffinity === "ClientIP") {
    words.push(
      traits.hasHostLoadBalancers
        ? "A client keeps its endpoint, for as long as the host pleases: the timeout cannot be set (sessionAffinity ClientIP)."
        : `A client keeps its endpoint until it has been silent for ${policies.affinitySeconds} seconds (sessionAffinity ClientIP).`,
    );
  }
  if (traits.carriesTraffic) {
    words.push("The proxy carries the bytes itself, so endpoints always see this node's address.");
    return words;
  }
  if (traits.hasHostLoadBalancers) {
    words.push(
      clients.answersDirectly
        ? "Endpoints answer clients of the cluster IP directly (winkernel.enableDSR), and see their addresses."
        : "Without winkernel.enableDSR, endpoints see this node or the source VIP as the client of the cluster IP.",
    );
    if (port.externalPolicyLocal) {
      words.push(
        "The Local policy of the outside needs direct server return in HNS (9.3 to 9.x, or 10.2 on); without it, it counts as Cluster.",
      );
    }
    return words;
  }
  if (clients.masqueradeAll) words.push("masqueradeAll is set: endpoints never see who asks at the cluster IP.");
  else if (!clients.detectsPods) {
    words.push(
      "The configuration does not say how to tell the pods of this node from others (clusterCIDR, detectLocalMode): " +
        "cluster IPs are not masqueraded, and pods count as outside for the Local policy.",
    );
  }
  if (routing.local.length > 0 || routing.cluster.some(({ isLocal }) => isLocal)) {
    const isAtSocket = traits.decidesAtSocket.includes(port.protocol) && !clients.masqueradeAll;
    words.push(
      isAtSocket
        ? "An endpoint that asks its own Service and gets itself sees itself: it is led at the socket."
        : "An endpoint that asks its own Service and gets itself sees the node's address (hairpin).",
    );
  }
  return words;
}

function ownershipSentences({ frontends }: Decided): string[] {
  return frontends.flatMap(({ owner, address, port }) =>
    owner === null ? [] : [`${address ?? "node port"} ${port} belongs to ${owner}, and does not lead here.`],
  );
}

/** `no endpoint`, `1 endpoint`, `2 endpoints`. */
export function counted(count: number, noun: string): string {
  return `${count === 0 ? "no" : count} ${noun}${count > 1 ? "s" : ""}`;
}
