/**
 * All that one service port owns in the flat layout: elements of sets and maps, and nothing else. What becomes of a packet is
 * that of reference nftables.md §3.4, §3.5; how it is said is docs/reference/flat-nftables.md §3. Pure: the same input gives the
 * same plan, in the same order.
 */
import type { NftTarget, NftValue } from "../../../kernel/nftables/ruleset.ts";
import type { Endpoint } from "../../../model/endpoint.ts";
import { type Frontend, frontendsOf } from "../../../model/frontend.ts";
import { onePerDestination } from "../../../model/frontend-ownership.ts";
import type { ServicePort } from "../../../model/service-port.ts";
import { routeServicePort, type ServicePortRouting } from "../../../model/service-port-routing.ts";
import { splitCidr } from "../../../net/ip.ts";
import { protocolName } from "../../../net/protocol.ts";
import { allowedSources } from "../common-rules.ts";
import { localhostElements } from "../localhost-node-ports.ts";
import { SETS } from "../names.ts";
import type { PlanConfig, PlanFacts } from "../plan-options.ts";
import type { ElementChange, ServicePortPlan, SharedElement } from "../table-plan.ts";
import { ALLOWED_SOURCES, ENDPOINT_MAPS, type EndpointMap, FLAT_SETS, numbered, STICKY_SETS } from "./names.ts";
import { slotOwners } from "./slots.ts";

/**
 * Plans one service port. Pure.
 *
 * @param endpoints all its endpoints, sorted by text; empty when it has none.
 * @param known {@link ServicePortPlan.slots} of the same plan, made before.
 */
export function planServicePort(
  port: ServicePort,
  endpoints: readonly Endpoint[],
  config: PlanConfig,
  facts: PlanFacts,
  known?: readonly Endpoint[],
): ServicePortPlan {
  const routing = routeServicePort(port, endpoints, { nodeName: config.nodeName, zone: facts.zone });
  const protocol = protocolName(port.protocol);
  const elements: SharedElement[] = [{ set: SETS.clusterIPs, element: { key: [port.clusterIP] } }];
  for (const { ip, port: endpointPort, isLocal } of routing.categories.reachable) {
    if (!isLocal) continue;
    elements.push({ set: SETS.hairpinConnections, element: { key: [ip, ip, protocol, endpointPort] } });
  }
  elements.push(...localhostElements(port, config.rejectedAtLocalhost ?? []));
  const slots: Slots = { cluster: known ?? slotOwners(routing.cluster), local: slotOwners(routing.local) };
  for (const frontend of onePerDestination(port, frontendsOf(port, routing))) {
    const elementsOf = new FrontendElements(port, frontend, elements);
    elementsOf.addFate();
    if (isServed(frontend, routing)) elementsOf.addService(slots);
    if (frontend.kind === "load-balancer" && frontend.sources.length > 0) elementsOf.addSources(config);
  }
  // With affinity, what is remembered of clients would have to be looked through.
  const isOfSlotsOnly = port.sessionAffinity !== "ClientIP" && slots.cluster.length > 0 && !hasLocal(routing);
  const { lacksLocal } = routing;
  return { affinitySets: [], chains: [], elements, slots: isOfSlotsOnly ? slots.cluster : undefined, lacksLocal };
}

/**
 * The changes that new endpoints make, without a plan: under a stream of changes nearly every change replaces endpoints only, and
 * most of a plan stays the same. Pure.
 *
 * @param had {@link ServicePortPlan.slots}
 * @param endpoints that `port` is to be planned with.
 * @returns undefined where more may change than what is in the slots that there are: {@link planServicePort} tells then.
 */
export function changedSlots(
  port: ServicePort,
  had: readonly Endpoint[],
  endpoints: readonly Endpoint[],
  { nodeName }: PlanConfig,
  { zone }: PlanFacts,
): { readonly slots: readonly Endpoint[]; readonly changes: readonly ElementChange[] } | undefined {
  const routing = routeServicePort(port, endpoints, { nodeName, zone });
  const slots = slotOwners(routing.cluster);
  if (slots.length !== had.length || hasLocal(routing)) return undefined;
  const changes: ElementChange[] = [];
  const comment = port.name.text;
  for (const frontend of onePerDestination(port, frontendsOf(port, routing))) {
    for (const [map, policy] of isServed(frontend, routing) ? tablesOf(frontend) : []) {
      // Without endpoints here, the Local policy has none.
      if (policy === "local") continue;
      const set = numbered(map, slots.length);
      for (const [slot, owner] of had.entries()) {
        const successor = slots[slot];
        if (successor === undefined || (owner.ip === successor.ip && owner.port === successor.port)) continue;
        const key = slotKey(port, frontend, slot);
        const before = { key, target: targetOf(owner), comment };
        changes.push({ set, before, after: { key, target: targetOf(successor), comment } });
      }
    }
  }
  return { slots, changes };
}

/** Endpoints of this node decide what the Local policy does, and have an element of their own for connections to themselves. */
function hasLocal({ categories }: ServicePortRouting): boolean {
  return categories.reachable.some(({ isLocal }) => isLocal);
}

/** Under the Local policy, clients of this node are served where others are dropped. */
function isServed({ kind, fate }: Frontend, { usesExternal }: ServicePortRouting): boolean {
  return kind === "cluster-ip" ? fate === "serve" : usesExternal;
}

type Policy = "cluster" | "local";

/** The endpoint in each slot, by policy. */
type Slots = Readonly<Record<Policy, readonly Endpoint[]>>;

/** The tables of a frontend that is served. */
function tablesOf({ kind, address, policy }: Frontend): readonly (readonly [EndpointMap, Policy])[] {
  const tables = address === undefined ? NODE_PORT_TABLES : FRONTEND_TABLES;
  if (policy === "Cluster") return tables.cluster;
  return kind === "cluster-ip" ? tables.internalLocal : tables.externalLocal;
}

interface Tables {
  readonly cluster: readonly (readonly [EndpointMap, Policy])[];
  readonly internalLocal: readonly (readonly [EndpointMap, Policy])[];
  /** Clients of this node have all endpoints. */
  readonly externalLocal: readonly (readonly [EndpointMap, Policy])[];
}

function tablesWith(main: EndpointMap, ofNode: EndpointMap): Tables {
  const local = [main, "local"] as const;
  return { cluster: [[main, "cluster"]], internalLocal: [local], externalLocal: [[ofNode, "cluster"], local] };
}

const FRONTEND_TABLES = tablesWith(ENDPOINT_MAPS.frontend, ENDPOINT_MAPS.frontendCluster);
const NODE_PORT_TABLES = tablesWith(ENDPOINT_MAPS.nodePort, ENDPOINT_MAPS.nodePortCluster);

/** In one piece: a list that is made by spreading gets room for sixteen more. */
function slotKey({ protocol }: ServicePort, { address, port }: Frontend, slot: number): readonly NftValue[] {
  const name = protocolName(protocol);
  return address === undefined ? [name, port, slot] : [address, name, port, slot];
}

function targetOf({ ip, port }: Endpoint): NftTarget {
  return { ip, port };
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

  /** For a frontend that is not served, or not for everybody. */
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
    }
    for (const [map, policyOfSlots] of tablesOf(this.#frontend)) this.#addSlots(map, slots[policyOfSlots]);
    const { sessionAffinity, stickyMaxAgeSeconds } = this.#port;
    if (sessionAffinity === "ClientIP") {
      this.#add(numbered(isNodePort ? STICKY_SETS.nodePort : STICKY_SETS.frontend, stickyMaxAgeSeconds));
    }
  }

  #addSlots(map: EndpointMap, owners: readonly Endpoint[]): void {
    const set = numbered(map, owners.length);
    const comment = this.#port.name.text;
    // This is done twice for every change: an iterator of entries would make a list for each.
    let slot = 0;
    for (const owner of owners) {
      const key = slotKey(this.#port, this.#frontend, slot);
      this.#elements.push({ set, element: { key, target: targetOf(owner), comment } });
      slot += 1;
    }
  }

  addSources(config: PlanConfig): void {
    const cidrs = new Set(allowedSources(this.#port, config));
    this.#add(FLAT_SETS.restrictedFrontends);
    const comment = this.#port.name.text;
    for (const { address, length } of Array.from(cidrs, splitCidr)) {
      const set = numbered(ALLOWED_SOURCES, length);
      this.#elements.push({ set, element: { key: [...this.#key, address], comment } });
    }
  }
}
