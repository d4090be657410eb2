/**
 * The sets and maps of the flat layout, docs/reference/flat-nftables.md §3: those that always exist, and those that
 * exist while a service port has elements in them.
 */
import type { Counted } from "../../../contract/config/config.ts";
import type { NftSet } from "../../../kernel/nftables/ruleset.ts";
import { CLUSTER_IPS, FRONT_END, HAIRPIN_CONNECTIONS, NODE_PORT, NODE_PORT_IPS, set } from "../common-rules.ts";
import { LOCALHOST_REJECT_PORTS } from "../localhost-node-ports.ts";
import type { SetsInUse } from "../table-plan.ts";
import {
  ALLOWED_SOURCES,
  CLIENTS,
  type EndpointMap,
  endpointMapOf,
  FLAT_SETS,
  type HashClass,
  hashClassOf,
  hashSet,
  isOfChains,
  isOfNodePorts,
  numbered,
  numberIn,
  STICKY_SETS,
} from "./names.ts";
import { MOST_EXACT } from "./slots.ts";

/** The most clients that are remembered for one timeout; any more are served without session affinity. */
const MOST_CLIENTS = 262_144;

/** In the order of `nft list`. */
export const FIXED_SETS: readonly NftSet[] = [
  HAIRPIN_CONNECTIONS,
  CLUSTER_IPS,
  NODE_PORT_IPS,
  set(FLAT_SETS.frontends, FRONT_END, "addresses at which services answer"),
  set(FLAT_SETS.nodePorts, NODE_PORT, "node ports at which services answer"),
  set(FLAT_SETS.masqueradedFrontends, FRONT_END, "external addresses of the Cluster policy"),
  set(FLAT_SETS.localPolicyFrontends, FRONT_END, "external addresses of the Local policy"),
  set(FLAT_SETS.localPolicyNodePorts, NODE_PORT, "node ports of the Local policy"),
  set(FLAT_SETS.rejectedFrontends, FRONT_END, "services without endpoints"),
  set(FLAT_SETS.rejectedNodePorts, NODE_PORT, "node ports of services without endpoints"),
  set(FLAT_SETS.droppedFrontends, FRONT_END, "services without endpoints on this node"),
  set(FLAT_SETS.droppedNodePorts, NODE_PORT, "node ports of services without endpoints on this node"),
  LOCALHOST_REJECT_PORTS,
  set(FLAT_SETS.restrictedFrontends, FRONT_END, "load balancer addresses with source ranges"),
];

const FIXED_BY_NAME: ReadonlyMap<string, NftSet> = new Map(FIXED_SETS.map((fixed) => [fixed.name, fixed]));

const COUNTING: ReadonlySet<string> = new Set([
  ...[FLAT_SETS.frontends, FLAT_SETS.nodePorts, FLAT_SETS.restrictedFrontends],
  ...[FLAT_SETS.rejectedFrontends, FLAT_SETS.rejectedNodePorts, FLAT_SETS.droppedFrontends, FLAT_SETS.droppedNodePorts],
]);

/** Whether elements of a set count their matches: a nat chain sees only the first packet of a connection. */
export function isCounting(name: string, counted: Counted = "None"): boolean {
  if (counted === "None") return false;
  if (COUNTING.has(name) || numberIn(name, ALLOWED_SOURCES) !== undefined) return true;
  return counted === "Endpoints" && endpointMapOf(name) !== undefined;
}

/** A cache of definitions by name: the same few are requested again and again. */
const known = new Map<string, NftSet>();
/** A bound for the cache: each number of slots and each timeout is a name, and other programs can make up more. */
const MOST_KNOWN = 1_000;

/** The set or map of this name; undefined if this layout has none. */
export function flatSet(name: string): NftSet | undefined {
  const found = FIXED_BY_NAME.get(name) ?? known.get(name);
  if (found !== undefined) return found;
  const made = setOnDemand(name);
  if (made !== undefined && known.size < MOST_KNOWN) known.set(name, made);
  return made;
}

function setOnDemand(name: string): NftSet | undefined {
  const endpoints = endpointMapOf(name);
  if (endpoints !== undefined) return endpointSet(name, endpoints.map, endpoints.slots);
  const hashed = hashClassOf(name);
  if (hashed !== undefined)
    return set(name, isOfNodePorts(hashed.map) ? NODE_PORT : FRONT_END, `endpoints by ${hashed.hashing}`);
  const clients = numberIn(name, CLIENTS);
  if (clients !== undefined) return clientSet(clients);
  if (numberIn(name, ALLOWED_SOURCES) !== undefined) {
    return set(name, [...FRONT_END, "address"], "who may ask at restricted frontends");
  }
  const byFrontend = numberIn(name, STICKY_SETS.frontend);
  const seconds = byFrontend ?? numberIn(name, STICKY_SETS.nodePort);
  if (seconds === undefined) return undefined;
  return set(name, byFrontend === undefined ? NODE_PORT : FRONT_END, `session affinity of ${seconds} s`);
}

/** Whether several service ports may want one key of a set, or affinity depends on it. Frontends have one owner. */
export function isTrackedSet(name: string): boolean {
  return !FIXED_BY_NAME.has(name)
    ? numberIn(name, STICKY_SETS.frontend) !== undefined || numberIn(name, STICKY_SETS.nodePort) !== undefined
    : name === CLUSTER_IPS.name || name === HAIRPIN_CONNECTIONS.name || name === NODE_PORT_IPS.name;
}

function endpointSet(name: string, map: EndpointMap, slots: number): NftSet {
  return {
    name,
    key: [...(isOfNodePorts(map) ? NODE_PORT : FRONT_END), "slot"],
    isMap: isOfChains(map),
    ...(!isOfChains(map) && { hasTargets: true as const }),
    slots,
    comment: slots <= MOST_EXACT ? `for ${slots} endpoint${slots === 1 ? "" : "s"}` : `for many endpoints`,
  };
}

function clientSet(timeoutSeconds: number): NftSet {
  return {
    name: numbered(CLIENTS, timeoutSeconds),
    key: ["address", ...FRONT_END],
    isMap: false,
    hasTargets: true,
    timeoutSeconds,
    size: MOST_CLIENTS,
    comment: "endpoint of a client at a frontend",
  };
}

/** Sets beside {@link FIXED_SETS}: slot numbers by endpoint map, prefix lengths of source ranges, affinity timeouts. */
export interface SetsOnDemand {
  readonly sourceBits: readonly number[];
  readonly slots: ReadonlyMap<EndpointMap, readonly number[]>;
  /** By name of the set. */
  readonly hashes: readonly HashClass[];
  readonly timeouts: readonly number[];
  /** The timeouts in use by frontends, and those in use by node ports. */
  readonly frontendTimeouts: ReadonlySet<number>;
  readonly nodePortTimeouts: ReadonlySet<number>;
}

/** Derives the sets on demand from the names of the sets that have elements. */
export function setsOnDemand(inUse: SetsInUse): SetsOnDemand {
  const slots = new Map<EndpointMap, number[]>();
  const hashes: HashClass[] = [];
  const sourceBits: number[] = [];
  const frontendTimeouts = new Set<number>();
  const nodePortTimeouts = new Set<number>();
  for (const name of inUse) {
    const endpoints = endpointMapOf(name);
    if (endpoints !== undefined) slots.set(endpoints.map, [...(slots.get(endpoints.map) ?? []), endpoints.slots]);
    const hashed = hashClassOf(name);
    if (hashed !== undefined) hashes.push(hashed);
    const bits = numberIn(name, ALLOWED_SOURCES);
    if (bits !== undefined) sourceBits.push(bits);
    const byFrontend = numberIn(name, STICKY_SETS.frontend);
    if (byFrontend !== undefined) frontendTimeouts.add(byFrontend);
    const byNodePort = numberIn(name, STICKY_SETS.nodePort);
    if (byNodePort !== undefined) nodePortTimeouts.add(byNodePort);
  }
  for (const numbers of [sourceBits, ...slots.values()]) numbers.sort((a, b) => a - b);
  hashes.sort((a, b) => (hashSet(a) < hashSet(b) ? -1 : 1));
  const timeouts = [...new Set([...frontendTimeouts, ...nodePortTimeouts])].sort((a, b) => a - b);
  return { sourceBits, slots, hashes, timeouts, frontendTimeouts, nodePortTimeouts };
}

/** The definitions of the sets on demand, in the order of `nft list`. */
export function definitionsOf(inUse: SetsInUse, { timeouts }: SetsOnDemand): NftSet[] {
  const isOnDemand = (name: string): boolean => !FIXED_BY_NAME.has(name);
  // One collator for all comparisons: `localeCompare` makes one for each.
  const { compare } = new Intl.Collator("en", { numeric: true });
  const names = [...inUse].filter(isOnDemand).sort(compare);
  return [
    ...names.map(flatSet).filter((one) => one !== undefined),
    ...timeouts.map((timeoutSeconds) => clientSet(timeoutSeconds)),
  ];
}
