/** The sentences of explanations. */
import type { EndpointReason, IgnoredHints, TopologyReason } from "../../model/endpoint-reasons.ts";
import type { FrontendKind } from "../../model/frontend.ts";
import type { Hashing } from "../../net/balancing.ts";
import { joinHostPort } from "../../net/ip.ts";
import { type Encounter, type ExplainedFrontend, POSITIONS, type Position, type ReachReason } from "./explanation.ts";

/** The kinds of frontends as Kubernetes calls them. */
export const KIND_WORDS: Readonly<Record<FrontendKind, string>> = {
  "cluster-ip": "cluster IP",
  "external-ip": "external IP",
  "load-balancer": "load balancer",
  "node-port": "node port",
};

/** `cluster IP 10.96.0.10:80`, `node port 30080`. */
export function frontendTitle({ kind, address, port }: Pick<ExplainedFrontend, "kind" | "address" | "port">): string {
  if (address === null) return `${KIND_WORDS[kind]} ${port}`;
  return `${KIND_WORDS[kind]} ${joinHostPort(address, port)}`;
}

export const POSITION_WORDS: Readonly<Record<Position, string>> = {
  pod: "a pod here",
  node: "this node",
  "other-node": "another node",
  outside: "clients outside",
};

/** Who meets something: `any client`, or the positions. */
export function whoWords(met: readonly Pick<Encounter, "position">[]): string {
  return met.length === POSITIONS.length
    ? "any client"
    : met.map(({ position }) => POSITION_WORDS[position]).join(", ");
}

/** Facts that the reasons mention. */
interface ReasonFacts {
  readonly leftOut?: string | undefined;
  readonly nodeName: string;
  readonly endpointNode: string;
  readonly hints: readonly string[];
}

/** Why an endpoint is used or left out. */
export function endpointWords(
  reason: EndpointReason,
  { nodeName, endpointNode, hints, leftOut = "" }: ReasonFacts,
): string {
  switch (reason) {
    case "ready":
      return "ready";
    case "last-resort":
      return "it terminates, but still serves, and none is ready";
    case "drained":
      return "its slice has weight 0: no new connections";
    case "unanswered":
      return `${nodeName} leaves it out: ${leftOut}`;
    case "not-ready":
      return "not ready";
    case "terminated":
      return "it terminates and no longer serves";
    case "terminating":
      return "it terminates, and others are ready";
    case "not-local":
      return endpointNode === "" ? "its node is not known" : `it is on ${endpointNode}, not on ${nodeName}`;
    case "other-zone":
      return `its hint is for zone ${hints.join(", ")}`;
    case "other-node":
      return `its hint is for node ${hints.join(", ")}`;
  }
}

const REACH_WORDS: Readonly<Record<ReachReason, string>> = {
  "no-endpoint": "no endpoint is usable",
  "no-local-endpoint": "the policy is Local, and no usable endpoint is on this node",
  "source-ranges": "its address is not in loadBalancerSourceRanges",
  "own-packets-not-looked-at":
    "no endpoint is usable, and no rule handles the node's own packets: they leave by its routes",
  "only-from-elsewhere": "external IPs only serve packets from outside this node: it leaves by the node's routes",
  "answers-lost": "an endpoint on another node would answer them past this node",
  "no-cluster-cidr": "depends on clusterCIDR, which is not known",
  "not-by-bridge": "not if the pod is behind a bridge whose packets pass the node's rules (br_netfilter)",
  "protocol-not-served": "userspace mode does not serve SCTP",
  "left-to-the-node":
    "userspace mode does not serve SCTP: the node itself refuses it, unless a process of its own listens there",
  "no-node-port-address": "no address of this node takes node ports",
  "other-frontend": "an external or load-balancer IP of that port is the node's own address, and takes precedence",
  "not-known": "the planned rules do not say",
  "no-load-balancer":
    "no endpoint that the policy allows is usable, so the host has no load balancer there: it leaves by its routes",
  "another-nodes": "the address is another Node's, and packets to it go there",
  "host-not-led": "HNS does not redirect the node's own packets",
  policy: "",
};

const OUTCOME_WORDS: Readonly<Record<Exclude<Encounter["outcome"], "answered" | "not-known">, string>> = {
  refused: "refused",
  dropped: "dropped",
  "passed-by": "not taken",
};

/** What a client meets, as part of a sentence. */
export function encounterWords({ outcome, reason, words }: Encounter): string {
  if (outcome === "answered") return `answered ${words}`;
  if (outcome === "not-known") return words;
  return reason === "answers-lost" ? `no answer, because ${words}` : `${OUTCOME_WORDS[outcome]}: ${words}`;
}

/** Who answers a client, or why it gets no answer. */
export function reasonWords(encounter: Omit<Encounter, "words">): string {
  const { outcome, reason, endpoints, source, onlyListedSources } = encounter;
  const only = onlyListedSources ? "; dropped if not in loadBalancerSourceRanges" : "";
  if (outcome !== "answered") return `${REACH_WORDS[reason]}${only}`;
  const from = endpoints === "local" ? "an endpoint here" : "any endpoint";
  if (reason === "no-cluster-cidr") return `by ${from}; whether masqueraded ${REACH_WORDS[reason]}${only}`;
  const lost =
    reason === "answers-lost" ? "; an endpoint on another node answers past this node, and that answer is lost" : "";
  const bridged = reason === "not-by-bridge" ? `; ${REACH_WORDS[reason]}` : "";
  return `by ${from}, ${SOURCE_WORDS[source ?? "kept"]}${lost}${bridged}${only}`;
}

const SOURCE_WORDS: Readonly<Record<NonNullable<Encounter["source"]>, string>> = {
  kept: "which sees the client's IP",
  masqueraded: "which sees the node (masqueraded)",
  "service-address": "which sees the service's own address",
  "host-or-source-vip": "which sees this node's address, or the source VIP on an overlay",
};

/** What topology hints do on this node; no sentence if there are none. */
export function topologyWords({ mode, ignored }: TopologyReason, zone: string | undefined): string[] {
  if (mode.kind === "same-zone") {
    return [`Every ready endpoint has a zone hint: this node uses those for its zone, ${mode.zone}.`];
  }
  if (mode.kind === "same-node") {
    return [`Every ready endpoint has a node hint: this node uses those for itself, ${mode.node}.`];
  }
  return ignored.map((hints) => ignoredWords(hints, zone));
}

function ignoredWords({ kind, why }: IgnoredHints, zone: string | undefined): string {
  const us = kind === "zone" ? `this node's zone, ${zone ?? ""}` : "this node";
  switch (why.code) {
    case "missing":
      return `The ${kind} hints do not count: the ready endpoint ${why.endpoint.text} has none.`;
    case "none-for-us":
      return `The ${kind} hints do not count: none is for ${us}.`;
    case "zone-unknown":
      return "The zone hints do not count: the zone of this node is not known.";
  }
}

/** `33.3 %`, `100 %`. */
export function shareText(share: number): string {
  return `${Number((share * 100).toFixed(1))} %`;
}

/** What a hash chooses an endpoint by. */
export const HASH_WORDS: Readonly<Record<Hashing, string>> = {
  SourceHash: "by the client's address",
  FlowHash: "by the client's address and port",
};
