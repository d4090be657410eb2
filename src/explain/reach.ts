/**
 * What a client meets at a frontend of a service port, by where it is: reference iptables-operation.md §15 for modes that
 * translate addresses, userspace.md §1.3 and ipvs.md §3, §4, §7 for the others. What is served is decided by the model (`frontendsOf`,
 * `routeServicePort`), and what a mode does differently is said by its traits. Pure.
 */
import type { ModeTraits } from "../dataplane/traits.ts";
import type { Frontend } from "../model/frontend.ts";
import type { ServicePort } from "../model/service-port.ts";
import type { ServicePortRouting } from "../model/service-port-routing.ts";
import { type Cidr, cidrContains, type IpAddress, splitCidr } from "../net/ip.ts";
import { hostLoadBalancerEncounter } from "./host-load-balancers.ts";

/** Where a client is: a pod of this node, this node itself, another node, outside of the cluster. */
export const POSITIONS = ["pod", "node", "other-node", "outside"] as const;
export type Position = (typeof POSITIONS)[number];

/** What is known of the clients of one family. */
export interface ClientFacts {
  /** The node can tell its pods from others. */
  readonly detectsPods: boolean;
  readonly masqueradeAll: boolean;
  /** Load balancers of the host let endpoints answer clients of cluster IPs directly. */
  readonly answersDirectly: boolean;
  readonly nodeIP: IpAddress;
  /** Networks of the pods, where they are known. */
  readonly podNetworks: readonly Cidr[];
  readonly otherNodes: readonly IpAddress[];
}

export type Outcome = "answered" | "refused" | "dropped" | "passed-by";

/** Why a client meets something else than an answer, or not the answer that the policy promises. */
export type ReachReason =
  | "no-endpoint"
  | "no-local-endpoint"
  | "source-ranges"
  | "own-packets-not-looked-at"
  | "only-from-elsewhere"
  | "answers-lost"
  | "no-load-balancer"
  | "host-not-led"
  | "policy";

export interface Encounter {
  readonly position: Position;
  readonly outcome: Outcome;
  /** Which endpoints answer; undefined when none does. */
  readonly endpoints: "all" | "local" | undefined;
  /** What the endpoint sees as the client: its address, the service's own address, or the node's. Undefined when none answers. */
  readonly source: "kept" | "service-address" | "masqueraded" | "host-or-source-vip" | undefined;
  readonly reason: ReachReason;
  /** This holds for clients in `loadBalancerSourceRanges` only; others are dropped. */
  readonly onlyListedSources: boolean;
}

export interface Question {
  readonly frontend: Frontend;
  readonly port: ServicePort;
  readonly routing: ServicePortRouting;
  readonly traits: ModeTraits;
  readonly facts: ClientFacts;
  readonly position: Position;
}

/** What every position meets at one frontend. */
export function encountersAt(question: Omit<Question, "position">): Encounter[] {
  return POSITIONS.map((position) => encounterOf({ ...question, position }));
}

type Admission = "all" | "listed" | "none";

function encounterOf(question: Question): Encounter {
  const { traits, routing, frontend, position } = question;
  const admitted = admissionOf(question);
  if (traits.hasHostLoadBalancers) return hostLoadBalancerEncounter(question);
  if (traits.hasVirtualServers) return virtualServerEncounter(question, admitted);
  const barred = admitted === "none";
  if (!routing.categories.hasAny) {
    if (barred && traits.checksSourcesFirst) return unanswered(question, "dropped", "source-ranges");
    const isForeign = frontend.kind === "external-ip" || frontend.kind === "load-balancer";
    if (isForeign && position === "node" && !traits.refusesNodeAtExternalAddresses) {
      return unanswered(question, "passed-by", "own-packets-not-looked-at");
    }
    return unanswered(question, "refused", "no-endpoint", traits.checksSourcesFirst && admitted === "listed");
  }
  if (frontend.kind === "external-ip" && traits.carriesTraffic && isInside(question)) {
    return unanswered(question, "passed-by", "only-from-elsewhere");
  }
  if (barred) return unanswered(question, "dropped", "source-ranges");
  const isInternal = frontend.kind === "cluster-ip";
  const isLocalOnly = frontend.policy === "Local" && (isInternal || !isInside(question));
  const endpoints = isLocalOnly ? routing.local : routing.cluster;
  if (endpoints.length === 0) return unanswered(question, "dropped", "no-local-endpoint");
  const isKept =
    isDecidedAtSocket(question) ||
    (!traits.carriesTraffic && (isInternal ? keepsAtClusterIP(question) : keepsOutside(question)));
  return {
    position,
    outcome: "answered",
    endpoints: isLocalOnly ? "local" : "all",
    source: isKept ? "kept" : "masqueraded",
    reason: "policy",
    onlyListedSources: admitted === "listed",
  };
}

/** Ebpf.md §1.4: a pod is led there before it has sent a packet that could be masqueraded. */
function isDecidedAtSocket({ frontend, port, traits, facts, position }: Question): boolean {
  return (
    position === "pod" &&
    !facts.masqueradeAll &&
    traits.decidesAtSocket.includes(port.protocol) &&
    frontend.sources.length === 0 &&
    (frontend.policy === "Cluster" || frontend.kind === "cluster-ip" || facts.detectsPods)
  );
}

/** Without a detector, nothing is masqueraded there: iptables-operation.md §15, "no local detector". */
function keepsAtClusterIP({ facts, position }: Question): boolean {
  return !facts.masqueradeAll && (position === "pod" || !facts.detectsPods);
}

function keepsOutside({ frontend, position }: Question): boolean {
  return frontend.policy === "Local" && position !== "node";
}

/** Clients that a Local policy of the outside does not bind. Pods that cannot be told from others are not among them. */
function isInside({ position, facts }: Question): boolean {
  return position === "node" || (position === "pod" && facts.detectsPods);
}

/** Ipvs.md §3, §4, §7. */
function virtualServerEncounter(question: Question, admitted: Admission): Encounter {
  const { frontend, routing, facts, position } = question;
  const { local, cluster } = routing;
  const isLocalOnly = frontend.policy === "Local";
  const hasFallenBack = isLocalOnly && local.length === 0;
  const endpoints = isLocalOnly && !hasFallenBack ? local : cluster;
  const isVip = frontend.kind === "external-ip" || frontend.kind === "load-balancer";
  const isNode = position === "node";
  // The firewall sees what comes from outside before the virtual server does, and what the node sends after it.
  if (admitted === "none" && (!isNode || endpoints.length > 0)) return unanswered(question, "dropped", "source-ranges");
  if (endpoints.length === 0) {
    const why = routing.categories.hasAny ? "no-local-endpoint" : "no-endpoint";
    return unanswered(question, "refused", why, admitted === "listed");
  }
  const isInternal = frontend.kind === "cluster-ip";
  const keepsInternally = !facts.masqueradeAll && (position === "pod" || (!facts.detectsPods && !isNode));
  const isKept = isInternal ? keepsInternally : isLocalOnly;
  const comesFromOutside = position === "outside" || position === "other-node" || (isNode && isVip);
  if (!isInternal && isKept && hasFallenBack && comesFromOutside) {
    return unanswered(question, "dropped", "answers-lost");
  }
  return {
    position,
    outcome: "answered",
    endpoints: isLocalOnly && !hasFallenBack ? "local" : "all",
    source: !isKept ? "masqueraded" : isNode && isVip ? "service-address" : "kept",
    reason: "policy",
    onlyListedSources: admitted === "listed",
  };
}

function unanswered(
  { position }: Question,
  outcome: Outcome,
  reason: ReachReason,
  onlyListedSources = false,
): Encounter {
  return { position, outcome, reason, endpoints: undefined, source: undefined, onlyListedSources };
}

/** Which clients of a position `loadBalancerSourceRanges` lets in. */
function admissionOf({ frontend, facts, position }: Question): Admission {
  const { sources } = frontend;
  if (sources.length === 0) return "all";
  const holds = (address: IpAddress) => sources.some((range) => cidrContains(range, address));
  switch (position) {
    case "node":
      return holds(facts.nodeIP) ? "all" : "none";
    case "other-node":
      return together(facts.otherNodes.map((address) => (holds(address) ? "all" : "none")));
    case "pod":
      return together(facts.podNetworks.map((network) => admissionOfNetwork(network, sources)));
    case "outside":
      return "listed";
  }
}

function admissionOfNetwork(network: Cidr, sources: readonly Cidr[]): Admission {
  const contains = (outer: Cidr, inner: Cidr) =>
    splitCidr(outer).length <= splitCidr(inner).length && cidrContains(outer, splitCidr(inner).address);
  if (sources.some((range) => contains(range, network))) return "all";
  return sources.some((range) => contains(network, range)) ? "listed" : "none";
}

/** What holds for all; `listed` where they differ, or where none is known. */
function together(admissions: readonly Admission[]): Admission {
  const [first, ...others] = admissions;
  return first !== undefined && others.every((one) => one === first) ? first : "listed";
}
