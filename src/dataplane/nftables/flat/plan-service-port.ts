/**
 * All that one service port owns in the flat layout: elements of sets and maps, and nothing else. What becomes of a packet is
 * that of reference nftables.md §3.4, §3.5; how it is said is docs/reference/flat-nftables.md §3. Pure: the same input gives the
 * same plan, in the same order.
 */
import type { NftValue } from "../../../kernel/nftables/ruleset.ts";
import { rangeOf } from "../../../kernel/nftables/ruleset-ranges.ts";
import type { Endpoint } from "../../../model/endpoint.ts";
import { type Frontend, frontendsOf } from "../../../model/frontend.ts";
import { onePerDestination } from "../../../model/frontend-ownership.ts";
import type { ServicePort } from "../../../model/service-port.ts";
import { routeServicePort, type ServicePortRouting } from "../../../model/service-port-routing.ts";
import { mergedIntervals } from "../../../net/intervals.ts";
import { protocolName } from "../../../net/protocol.ts";
import { allowedSources } from "../allowed-sources.ts";
import { SETS } from "../names.ts";
import type { PlanConfig, PlanFacts } from "../plan-options.ts";
import type { ServicePortPlan, SharedElement } from "../table-plan.ts";
import { ENDPOINT_MAPS, type EndpointMap, endpointMapName, FLAT_SETS, STICKY_SETS, timedName } from "./names.ts";
import { slotTargets } from "./slots.ts";

/** Plans one service port. @param endpoints all its endpoints, sorted by text; empty when it has none. Pure. */
export function planServicePort(
  port: ServicePort,
  endpoints: readonly Endpoint[],
  config: PlanConfig,
  facts: PlanFacts,
): ServicePortPlan {
  const routing = routeServicePort(port, endpoints, { nodeName: config.nodeName, zone: facts.zone });
  const protocol = protocolName(port.protocol);
  const elements: SharedElement[] = [{ set: SETS.clusterIPs, element: { key: [port.clusterIP] } }];
  for (const { ip, port: endpointPort, isLocal } of routing.categories.reachable) {
    if (!isLocal) continue;
    elements.push({ set: SETS.hairpinConnections, element: { key: [ip, ip, protocol, endpointPort] } });
  }
  const slots = { cluster: slotTargets(routing.cluster), local: slotTargets(routing.local) };
  for (const frontend of onePerDestination(port, frontendsOf(port, routing))) {
    const elementsOf = new FrontendElements(port, frontend, elements);
    elementsOf.addFate();
    if (isServed(frontend, routing)) elementsOf.addService(slots);
    if (frontend.kind === "load-balancer" && frontend.sources.length > 0) elementsOf.addSources(config);
  }
  return { affinitySets: [], chains: [], elements, lacksLocal: routing.lacksLocal };
}

/** Under the Local policy, clients of this node are served where others are dropped. */
function isServed({ kind, fate }: Frontend, { usesExternal }: ServicePortRouting): boolean {
  return kind === "cluster-ip" ? fate === "serve" : usesExternal;
}

interface Slots {
  readonly cluster: ReturnType<typeof slotTargets>;
  readonly local: ReturnType<typeof slotTargets>;
}

/** Adds the elements of one frontend to a list. */
class FrontendElements {
  readonly #port: ServicePort;
  readonly #frontend: Frontend;
  readonly #key: readonly NftValue[];
  readonly #elements: SharedElement[];

  constructor(port: ServicePort, frontend: Frontend, elements: SharedElement[]) {
    this.#port = port;
    this.#frontend = frontend;
    const protocol = protocolName(port.protocol);
    const { address, port: number } = frontend;
    this.#key = address === undefined ? [protocol, number] : [address, protocol, number];
    this.#elements = elements;
  }

  get #isNodePort(): boolean {
    return this.#frontend.address === undefined;
  }

  #add(set: string): void {
    this.#elements.push({ set, element: { key: this.#key, comment: this.#port.name.text } });
  }

  /** Where it is not served, or not for everybody. */
  addFate(): void {
    const { fate } = this.#frontend;
    if (fate === "refuse") this.#add(this.#isNodePort ? FLAT_SETS.rejectedNodePorts : FLAT_SETS.rejectedFrontends);
    if (fate === "drop") this.#add(this.#isNodePort ? FLAT_SETS.droppedNodePorts : FLAT_SETS.droppedFrontends);
  }

  addService(slots: Slots): void {
    const { kind, policy } = this.#frontend;
    const isNodePort = this.#isNodePort;
    const isLocal = policy === "Local";
    this.#add(isNodePort ? FLAT_SETS.nodePorts : FLAT_SETS.frontends);
    if (kind !== "cluster-ip") {
      if (isLocal) this.#add(isNodePort ? FLAT_SETS.localPolicyNodePorts : FLAT_SETS.localPolicyFrontends);
      else if (!isNodePort) this.#add(FLAT_SETS.masqueradedFrontends);
      if (isLocal)
        this.#addSlots(isNodePort ? ENDPOINT_MAPS.nodePortCluster : ENDPOINT_MAPS.frontendCluster, slots.cluster);
    }
    this.#addSlots(isNodePort ? ENDPOINT_MAPS.nodePort : ENDPOINT_MAPS.frontend, isLocal ? slots.local : slots.cluster);
    const { sessionAffinity, stickyMaxAgeSeconds } = this.#port;
    if (sessionAffinity === "ClientIP") {
      this.#add(timedName(isNodePort ? STICKY_SETS.nodePort : STICKY_SETS.frontend, stickyMaxAgeSeconds));
    }
  }

  /** In one piece: a list that is made by spreading gets room for sixteen more. */
  #slotKey(slot: number): readonly NftValue[] {
    const { address, port } = this.#frontend;
    const protocol = protocolName(this.#port.protocol);
    return address === undefined ? [protocol, port, slot] : [address, protocol, port, slot];
  }

  #addSlots(map: EndpointMap, targets: Slots["cluster"]): void {
    const set = endpointMapName(map, targets.length);
    const comment = this.#port.name.text;
    // This is done twice for every change: an iterator of entries would make a list for each.
    let slot = 0;
    for (const target of targets) {
      this.#elements.push({ set, element: { key: this.#slotKey(slot), target, comment } });
      slot += 1;
    }
  }

  addSources(config: PlanConfig): void {
    this.#add(FLAT_SETS.restrictedFrontends);
    const comment = this.#port.name.text;
    for (const range of mergedIntervals(allowedSources(this.#port, config))) {
      this.#elements.push({
        set: FLAT_SETS.allowedSources,
        element: { key: [...this.#key, rangeOf(range)], comment },
      });
    }
  }
}
