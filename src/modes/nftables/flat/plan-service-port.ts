/**
 * All that one service port owns in the flat layout: only elements of sets and maps. Packets are treated as in
 * reference nftables.md §3.4, §3.5; docs/reference/flat-nftables.md §3 describes the encoding. The same input gives the
 * same plan, in the same order.
 */
import type { NftElement, NftTarget, NftValue } from "../../../kernel/nftables/ruleset.ts";
import type { Endpoint } from "../../../model/endpoint.ts";
import { type Frontend, frontendsOf, onePerDestination } from "../../../model/frontend.ts";
import type { ServicePort } from "../../../model/service-port.ts";
import { routeServicePort, type ServicePortRouting } from "../../../model/service-port-routing.ts";
import { sparseTables } from "../../../model/sparse-tables.ts";
import { splitCidr } from "../../../net/ip.ts";
import { protocolName } from "../../../net/protocol.ts";
import { allowedSources } from "../common-rules.ts";
import { localhostElements } from "../localhost-node-ports.ts";
import { SETS } from "../names.ts";
import type { PlanConfig, PlanFacts } from "../plan-options.ts";
import type { ElementChange, ServicePortPlan, SharedElement } from "../table-plan.ts";
import {
  ALLOWED_SOURCES,
  ENDPOINT_MAPS,
  type EndpointMap,
  FLAT_SETS,
  hashSet,
  numbered,
  STICKY_SETS,
  stickyMap,
} from "./names.ts";
import { slotOwners } from "./slots.ts";

/**
 * Plans one service port.
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
  elements.push(...localhostElements(port, config.rejectedAtLocalhost));
  const hashed = hashedElements(port, routing, config);
  const slots: Slots =
    hashed === undefined
      ? { cluster: known ?? slotOwners(routing.cluster), local: slotOwners(routing.local) }
      : { cluster: [], local: [] };
  for (const frontend of onePerDestination(port, frontendsOf(port, routing))) {
    addFrontend(elements, port, frontend, isServed(frontend, routing) ? slots : undefined);
    if (hashed !== undefined) elements.push(...hashed(frontend));
    if (frontend.kind === "load-balancer" && frontend.sources.length > 0) addSources(elements, port, frontend, config);
  }
  // With session affinity, a change of endpoints must also check the entries of clients.
  const isOfSlotsOnly = port.sessionAffinity !== "ClientIP" && slots.cluster.length > 0 && !hasLocal(routing);
  return { affinitySets: [], chains: [], elements, slots: isOfSlotsOnly ? slots.cluster : undefined };
}

/**
 * The changes caused by new endpoints, without a plan: in a stream of changes nearly every change only replaces
 * endpoints, and most of the plan stays the same.
 *
 * @param had {@link ServicePortPlan.slots}
 * @param endpoints the new endpoints of `port`.
 * @returns undefined if more than the content of the existing slots may change: use {@link planServicePort} then.
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
      // Without endpoints on this node, the Local policy has no slots.
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

/** Local endpoints decide what the Local policy does, and each has an element for hairpin connections. */
function hasLocal({ categories }: ServicePortRouting): boolean {
  return categories.reachable.some(({ isLocal }) => isLocal);
}

/** Under the Local policy, clients on this node are served even where others are dropped. */
function isServed({ kind, fate }: Frontend, { usesExternal }: ServicePortRouting): boolean {
  return kind === "cluster-ip" ? fate === "serve" : usesExternal;
}

type Policy = "cluster" | "local";

/** The endpoint in each slot, by policy. */
type Slots = Readonly<Record<Policy, readonly Endpoint[]>>;

/** The endpoint maps of a served frontend, each with the policy of its slots. */
function tablesOf({ kind, address, policy }: Frontend): readonly (readonly [EndpointMap, Policy])[] {
  const tables = address === undefined ? NODE_PORT_TABLES : FRONTEND_TABLES;
  if (policy === "Cluster") return tables.cluster;
  return kind === "cluster-ip" ? tables.internalLocal : tables.externalLocal;
}

interface Tables {
  readonly cluster: readonly (readonly [EndpointMap, Policy])[];
  readonly internalLocal: readonly (readonly [EndpointMap, Policy])[];
  /** Clients on this node can reach all endpoints. */
  readonly externalLocal: readonly (readonly [EndpointMap, Policy])[];
}

function tablesWith(main: EndpointMap, ofNode: EndpointMap): Tables {
  const local = [main, "local"] as const;
  return { cluster: [[main, "cluster"]], internalLocal: [local], externalLocal: [[ofNode, "cluster"], local] };
}

const FRONTEND_TABLES = tablesWith(ENDPOINT_MAPS.frontend, ENDPOINT_MAPS.frontendCluster);
const NODE_PORT_TABLES = tablesWith(ENDPOINT_MAPS.nodePort, ENDPOINT_MAPS.nodePortCluster);

/** Builds each key as one literal: V8 gives an array made by spreading room for sixteen more values. */
function frontendKey({ protocol }: ServicePort, { address, port }: Frontend): readonly NftValue[] {
  const name = protocolName(protocol);
  return address === undefined ? [name, port] : [address, name, port];
}

function slotKey({ protocol }: ServicePort, { address, port }: Frontend, slot: number): readonly NftValue[] {
  const name = protocolName(protocol);
  return address === undefined ? [name, port, slot] : [address, name, port, slot];
}

function targetOf({ ip, port }: Endpoint): NftTarget {
  return { ip, port };
}

/**
 * The elements by which the frontends of a service port choose by hash: the cells of each table, the endpoint of clients that meet none,
 * and which tables there are. Undefined if endpoints are chosen at random.
 *
 * @param chainOf the chain of an endpoint. @default rules lead to the endpoint itself
 */
export function hashedElements(
  port: ServicePort,
  routing: ServicePortRouting,
  { hashSeed, lacksHash }: PlanConfig,
  chainOf?: (endpoint: Endpoint) => string,
): ((frontend: Frontend) => readonly SharedElement[]) | undefined {
  const { balancing: hashing } = port;
  if (hashing === undefined || lacksHash === true) return undefined;
  const [cluster, local] = [sparseTables(routing.cluster, hashSeed), sparseTables(routing.local, hashSeed)];
  const comment = port.name.text;
  const leadingTo = (owner: Endpoint): Pick<NftElement, "verdict" | "target"> =>
    chainOf === undefined ? { target: targetOf(owner) } : { verdict: { kind: "goto", chain: chainOf(owner) } };
  return (frontend) =>
    (isServed(frontend, routing) ? tablesOf(frontend) : []).flatMap(([plain, policy]) => {
      const map = chainOf === undefined ? plain : stickyMap(plain);
      const chosen = policy === "cluster" ? cluster : local;
      if (chosen === undefined) return [];
      const { hashClass, tables, last } = chosen;
      const inSlot = (size: number, slot: number, owner: Endpoint): SharedElement => ({
        set: numbered(map, size),
        element: { key: slotKey(port, frontend, slot), ...leadingTo(owner), comment },
      });
      const cells = tables.flatMap(({ size, cells }) =>
        Array.from(cells, ([slot, owner]) => inSlot(size, slot, owner)),
      );
      const set = hashSet({ hashing, map, hashClass });
      const member = { set, element: { key: frontendKey(port, frontend), comment } };
      return [...cells, inSlot(1, 0, last), ...(tables.length === 0 ? [] : [member])];
    });
}

/** Adds the elements of one frontend to a list. @param slots undefined if it is not served; empty if a hash chooses. */
function addFrontend(elements: SharedElement[], port: ServicePort, frontend: Frontend, slots: Slots | undefined): void {
  const { kind, policy, fate } = frontend;
  const { sessionAffinity, stickyMaxAgeSeconds } = port;
  const comment = port.name.text;
  const key = frontendKey(port, frontend);
  const isNodePort = frontend.address === undefined;
  const add = (ofAddress: string, ofNodePort: string): void => {
    elements.push({ set: isNodePort ? ofNodePort : ofAddress, element: { key, comment } });
  };
  // The frontend is not served, or not for all clients.
  if (fate === "refuse") add(FLAT_SETS.rejectedFrontends, FLAT_SETS.rejectedNodePorts);
  if (fate === "drop") add(FLAT_SETS.droppedFrontends, FLAT_SETS.droppedNodePorts);
  if (slots === undefined) return;
  add(FLAT_SETS.frontends, FLAT_SETS.nodePorts);
  if (kind !== "cluster-ip" && policy === "Local") add(FLAT_SETS.localPolicyFrontends, FLAT_SETS.localPolicyNodePorts);
  else if (kind !== "cluster-ip" && !isNodePort) add(FLAT_SETS.masqueradedFrontends, "");
  for (const [map, policyOfSlots] of tablesOf(frontend)) {
    const owners = slots[policyOfSlots];
    const set = numbered(map, owners.length);
    // This runs twice for every change: entries() would allocate an array for each slot.
    let slot = 0;
    for (const owner of owners) {
      elements.push({ set, element: { key: slotKey(port, frontend, slot), target: targetOf(owner), comment } });
      slot += 1;
    }
  }
  if (sessionAffinity !== "ClientIP") return;
  add(numbered(STICKY_SETS.frontend, stickyMaxAgeSeconds), numbered(STICKY_SETS.nodePort, stickyMaxAgeSeconds));
}

/** Adds the sources that a load balancer's address admits. */
function addSources(elements: SharedElement[], port: ServicePort, frontend: Frontend, config: PlanConfig): void {
  const comment = port.name.text;
  const key = frontendKey(port, frontend);
  elements.push({ set: FLAT_SETS.restrictedFrontends, element: { key, comment } });
  for (const { address, length } of Array.from(new Set(allowedSources(port, config)), splitCidr)) {
    elements.push({ set: numbered(ALLOWED_SOURCES, length), element: { key: [...key, address], comment } });
  }
}
