/** What decided the fate of a service port's clients on a node, one sentence for each cause. */

import type { ModeWords, SourceFacts } from "../../contract/mode-words.ts";
import { counted } from "../../logging/counted.ts";
import { isWeighted } from "../../model/cells.ts";
import type { TopologyReason } from "../../model/endpoint-reasons.ts";
import type { EndpointSliceRecord, ServiceNotes, ServiceRecord } from "../../model/objects.ts";
import type { ServicePortRouting } from "../../model/service-port-routing.ts";
import { modeNamed } from "../../modes/registry.ts";
import { familyOf, type IpAddress, parseIpAddress } from "../../net/ip.ts";
import type { PortExplanation } from "./explanation.ts";
import { NO_ENDPOINTS } from "./stated-endpoints.ts";
import { HASH_WORDS, topologyWords } from "./words.ts";

/** The Service of a service port. */
export interface PortObjects {
  /** Undefined in a daemon, which does not keep it. */
  readonly service: ServiceRecord | undefined;
  /** All its slices, of every family. */
  readonly slices: readonly EndpointSliceRecord[];
  readonly notes?: ServiceNotes | undefined;
}

interface Decided
  extends Omit<SourceFacts, "hasLocal">,
    Pick<PortExplanation, "policies" | "endpoints" | "frontends" | "passedOver">,
    PortObjects {
  readonly words: ModeWords;
  readonly routing: ServicePortRouting;
  readonly topology: TopologyReason;
  /** Whether clusterCIDR, on which sources depend, is not known. */
  readonly isUndecided: boolean;
  /** How an endpoint is chosen among several. */
  readonly choice: string;
}

/** Why clients do not reach all endpoints, gravest cause first. */
export function causeWords(decided: Decided): string[] {
  return [
    ...decided.frontends.flatMap(({ owner, address, port }) =>
      owner === null ? [] : [`${address ?? "node port"} ${port} belongs to ${owner}, which answers there.`],
    ),
    ...endpointSentences(decided),
    ...policySentences(decided),
    ...loadBalancerSentences(decided),
  ];
}

/** What else matters. */
export function decisionWords(decided: Decided): string[] {
  const { policies, port, choice, routing, words, frontends } = decided;
  const sentences: string[] = [];
  if (policies.healthCheckNodePort !== 0) {
    const { localReady } = policies;
    const answer = localReady > 0 ? "200" : "503";
    sentences.push(
      `The load balancer's health check at node port ${policies.healthCheckNodePort} gets ${answer}: ${counted(localReady, "ready endpoint")} here.`,
    );
  }
  const isChosen = routing.categories.reachable.length > 1 && port.balancing === undefined;
  if (isChosen) sentences.push(`Among several endpoints one is chosen ${choice}.`);
  const hasLocal = routing.local.length > 0 || routing.cluster.some(({ isLocal }) => isLocal);
  return [
    ...sentences,
    ...(decided.isUndecided ? [] : words.sources({ ...decided, hasLocal })),
    ...frontends.flatMap(({ atLoopback }) => atLoopback ?? []),
  ];
}

/** Load-balancer addresses for which no node takes packets. */
function loadBalancerSentences({ service, notes }: Decided): string[] {
  const own = service?.loadBalancerIngress.filter(({ ipMode }) => ipMode === "Proxy").map(({ ip }) => ip) ?? [];
  const names = notes?.hostNames ?? [];
  const isAlone = (service?.loadBalancerIngress ?? []).length === 0;
  const found = isAlone ? "a name and no address" : "a name, too";
  return [
    ...(service === undefined ? [] : otherFamilySentences(service)),
    ...(own.length === 0 ? [] : [`Its load balancer ${own.join(", ")} has ipMode Proxy: no node takes packets to it.`]),
    ...(names.length === 0
      ? []
      : [`Its load balancer has ${found} (${names.join(", ")}): no node takes packets to ${isAlone ? "it" : "that"}.`]),
  ];
}

/** External and load-balancer addresses of a family that the Service does not have. */
function otherFamilySentences({ clusterIPs, externalIPs, loadBalancerIngress }: ServiceRecord): string[] {
  const parsed = (texts: readonly string[]) => texts.flatMap((text) => parseIpAddress(text) ?? []);
  const own = new Set(parsed(clusterIPs).map(familyOf));
  const isForeign = (address: IpAddress) => own.size > 0 && !own.has(familyOf(address));
  return Object.entries({
    "external IP": parsed(externalIPs).filter(isForeign),
    "load-balancer address": parsed(loadBalancerIngress.map(({ ip }) => ip)).filter(isForeign),
  }).flatMap(([kind, all]) =>
    all.map((one) => `The ${kind} ${one} is not used: the Service is ${[...own].join()} only.`),
  );
}

function withoutEndpoints({ node, notes, passedOver, service, slices, words }: Decided): string[] {
  const fate = `The service port has no endpoints: ${words.unserved}.`;
  const isTold = passedOver.some(({ why }) => why !== NO_ENDPOINTS);
  if (isTold || notes === undefined || service === undefined)
    return [fate, ...passedOver.map(({ slice, why }) => `EndpointSlice ${slice}: ${why}.`)];
  if (notes.selector === "") return [fate, "It has no selector, and there is no EndpointSlice for it with endpoints."];
  if (!slices.some(({ addressType }) => addressType === node.family)) {
    const kept = `a cluster keeps one for each selector, even if no pod matches (kubectl get endpointslices)`;
    return [fate, `No ${node.family} EndpointSlice for it is among the objects; ${kept}.`];
  }
  return [fate, `No pod matches its selector ${notes.selector}, or none has an address yet.`];
}

function endpointSentences(decided: Decided): string[] {
  const { endpoints, routing, topology, node, words } = decided;
  const fate = words.unserved;
  if (endpoints.length === 0) return withoutEndpoints(decided);
  if (!routing.categories.hasAny && endpoints.some(({ state }) => state === "ready")) {
    return [
      `${endpoints.length === 1 ? "Its only endpoint is" : "Its ready endpoints are"} drained (weight 0): ${fate}.`,
    ];
  }
  if (!routing.categories.hasAny) {
    const whose = endpoints.length === 1 ? "Its only endpoint is" : `None of its ${endpoints.length} endpoints is`;
    const state = endpoints.length === 1 ? "neither ready nor still serving" : "ready or still serving";
    return [`${whose} ${state}: ${fate}.`];
  }
  const sentences = topologyWords(topology, node.zone);
  if (!endpoints.some(({ state }) => state === "ready")) {
    sentences.push("No endpoint is ready: those that terminate but still serve are used.");
  }
  return sentences;
}

function hashSentences({ port, routing, config: { mode }, topology }: Decided): string[] {
  const { balancing } = port;
  const { reachable } = routing.categories;
  if (reachable.length < 2) return [];
  if (modeNamed(mode).ignoresBalancing === true) {
    const weighs = `The weights of EndpointSlices have no effect in ${mode} mode, apart from 0.`;
    const hash = `The Service asks for ${balancing}, which ${mode} mode does not have: it chooses without a hash.`;
    return [...(isWeighted(reachable) ? [weighs] : []), ...(balancing === undefined ? [] : [hash])];
  }
  if (balancing === undefined) return [];
  const isLocal = port.internalPolicyLocal || (port.externalPolicyLocal && port.isExternallyAccessible);
  const everywhere = isLocal ? "every node where the policy is Cluster" : "every node";
  if (modeNamed(mode).hashes === "in-kernel")
    return [`An endpoint is chosen ${HASH_WORDS[balancing]}, with the kernel's own hash (scheduler mh).`];
  const nodes = topology.mode.kind === "none" ? everywhere : "nodes that use the same endpoints";
  const whom = balancing === "FlowHash" ? "flow" : "client";
  const endpoint = port.sessionAffinity === "ClientIP" ? "A new client's endpoint" : "An endpoint";
  return [`${endpoint} is chosen ${HASH_WORDS[balancing]}: the same pod for the same ${whom} through ${nodes}.`];
}

function policySentences(decided: Decided): string[] {
  const { port, policies, routing, words } = decided;
  const sentences = hashSentences(decided);
  const { mode } = decided.config;
  if (port.leaveUnanswered === true && modeNamed(mode).leavesUnanswered === undefined)
    sentences.push(`The Service asks to leave out endpoints that do not answer, which ${mode} mode cannot.`);
  const usable = `${routing.local.length === 0 ? "none" : routing.local.length} usable`;
  if (policies.internal === "Local") {
    sentences.push(`internalTrafficPolicy is Local: at the cluster IP, only this node's endpoints answer (${usable}).`);
  }
  if (port.isExternallyAccessible && policies.external === "Local") {
    sentences.push(
      `externalTrafficPolicy is Local: ${words.localPolicy}only this node's endpoints answer (${usable}).`,
    );
  }
  if (policies.sessionAffinity === "ClientIP") sentences.push(words.affinity(policies.affinitySeconds));
  if (policies.sourceRanges.length > 0 && port.loadBalancerVIPs.length > 0) {
    sentences.push(words.sourceRanges(policies.sourceRanges));
  }
  return sentences;
}
