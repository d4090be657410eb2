/** Names of the flat layout: docs/reference/flat-nftables.md. Names of every layout are in `../names.ts`. */
import type { NftHash } from "../../../kernel/nftables/ruleset.ts";
import { HASH_CLASSES } from "../../../model/sparse-tables.ts";
import type { Hashing } from "../../../net/balancing.ts";

/** Sets that always exist. A frontend is `address . protocol . port`, a node port `protocol . port`. */
export const FLAT_SETS = {
  frontends: "frontends",
  nodePorts: "nodeports",
  masqueradedFrontends: "masqueraded-frontends",
  localPolicyFrontends: "local-policy-frontends",
  localPolicyNodePorts: "local-policy-nodeports",
  rejectedFrontends: "rejected-frontends",
  rejectedNodePorts: "rejected-nodeports",
  droppedFrontends: "dropped-frontends",
  droppedNodePorts: "dropped-nodeports",
  restrictedFrontends: "restricted-frontends",
} as const;

/** Chains that only this layout has; `services` and the checks exist in every layout. */
export const FLAT_CHAINS = {
  frontend: "frontend",
  frontendLocalPolicy: "frontend-local-policy",
  frontendEndpoints: "frontend-endpoints",
  frontendClusterEndpoints: "frontend-cluster-endpoints",
  nodePort: "nodeport",
  nodePortLocalPolicy: "nodeport-local-policy",
  nodePortEndpoints: "nodeport-endpoints",
  nodePortClusterEndpoints: "nodeport-cluster-endpoints",
  sourceCheck: "source-check",
  rememberClients: "remember-clients",
} as const;

/** Base names of the endpoint maps; a map's name is one of these and its number of slots. */
export const ENDPOINT_MAPS = {
  /** By frontend. */
  frontend: "endpoints",
  /** By frontend of the Local policy, for clients on this node. */
  frontendCluster: "cluster-endpoints",
  /** By node port. */
  nodePort: "nodeport-endpoints",
  /** By node port of the Local policy, for clients on this node. */
  nodePortCluster: "nodeport-cluster-endpoints",
  /** The compatible layout's for session affinity and hashes: verdict maps to the chains that remember clients. */
  sticky: "sticky-endpoints",
  stickyCluster: "sticky-cluster-endpoints",
  stickyNodePort: "sticky-nodeport-endpoints",
  stickyNodePortCluster: "sticky-nodeport-cluster-endpoints",
} as const;

export type EndpointMap = (typeof ENDPOINT_MAPS)[keyof typeof ENDPOINT_MAPS];

/** Whether a map is by node port. */
export function isOfNodePorts(map: EndpointMap): boolean {
  return map.includes("nodeport-");
}

/** Whether the values of a map are chains, not endpoints. */
export function isOfChains(map: EndpointMap): boolean {
  return map.startsWith(STICKY);
}

const STICKY = "sticky-";

/** The map of the same frontends and endpoints whose values are chains. */
export function stickyMap(map: EndpointMap): EndpointMap {
  return `${STICKY}${map}` as EndpointMap; // these have one each
}

const endpointMaps: ReadonlySet<string> = new Set(Object.values(ENDPOINT_MAPS));

/** Prefixes of the chains that exist only while an endpoint map of some size, or a client map of some timeout, does. */
const PICK = "pick";
export const REMEMBER = { frontend: "remember-frontends", nodePort: "remember-nodeports" } as const;

/** `pick-endpoints-3`, `pick-clients-10800`. */
export function pickChain(map: string): string {
  return `${PICK}-${map}`;
}

/** Whether a chain exists only for a size or a timeout. */
export function isChainOnDemand(name: string): boolean {
  if (numberIn(name, REMEMBER.frontend) !== undefined || numberIn(name, REMEMBER.nodePort) !== undefined) return true;
  const map = name.startsWith(`${PICK}-`) ? name.slice(PICK.length + 1) : "";
  if (endpointMapOf(map) !== undefined || hashClassOf(map) !== undefined) return true;
  return numberIn(map, CLIENTS) !== undefined || hashedMapOf(numberedName(map)?.base ?? "") !== undefined;
}

/** The parts of a name that ends in a number: `endpoints-3`. */
function numberedName(name: string): { readonly base: string; readonly number: number } | undefined {
  const at = name.lastIndexOf("-");
  const digits = name.slice(at + 1);
  return /^[1-9]\d{0,9}$/.test(digits) ? { base: name.slice(0, at), number: Number(digits) } : undefined;
}

/** The base name and the slots of an endpoint map; undefined for other names. */
export function endpointMapOf(name: string): { readonly map: EndpointMap; readonly slots: number } | undefined {
  const { base = "", number: slots = 0 } = numberedName(name) ?? {};
  return endpointMaps.has(base) ? { map: base as EndpointMap, slots } : undefined; // it is one of them
}

/** What is hashed, and how it is called in names. */
export const HASHES = {
  SourceHash: { prefix: "source-hash-", fields: ["saddr"] },
  FlowHash: { prefix: "flow-hash-", fields: ["saddr", "sport"] },
} as const satisfies Record<Hashing, { readonly prefix: string; readonly fields: NftHash["fields"] }>;

/** Frontends that choose by the same hash, with as many probes of the same tables. */
export interface HashClass {
  readonly hashing: Hashing;
  readonly map: EndpointMap;
  /** One of {@link HASH_CLASSES}. */
  readonly hashClass: number;
}

/** The set of a class: `source-hash-endpoints-4` for those with four cells. */
export function hashSet({ hashing, map, hashClass }: HashClass): string {
  return numbered(`${HASHES[hashing].prefix}${map}`, hashClass);
}

/** The class of a set or its chain; undefined for other names. */
export function hashClassOf(name: string): HashClass | undefined {
  const found = hashedMapOf(name);
  return found !== undefined && HASH_CLASSES.includes(found.number)
    ? { hashing: found.hashing, map: found.map, hashClass: found.number }
    : undefined;
}

/** `source-hash-endpoints-64-8`: up to eight probes of the map `endpoints-64`, which classes share. */
export function probesOf({ hashing, map }: HashClass, size: number, probes: number): string {
  return numbered(numbered(`${HASHES[hashing].prefix}${map}`, size), probes);
}

function hashedMapOf(name: string) {
  for (const hashing of Object.keys(HASHES) as Hashing[]) {
    const { prefix } = HASHES[hashing];
    const named = name.startsWith(prefix) ? endpointMapOf(name.slice(prefix.length)) : undefined;
    if (named !== undefined) return { hashing, map: named.map, number: named.slots };
  }
  return undefined;
}

/** Base name of the sets of clients that restricted frontends admit, one per prefix length: `allowed-sources-24`. */
export const ALLOWED_SOURCES = "allowed-sources";

/** Base names of the sets of frontends and node ports with session affinity, one per timeout in seconds. */
export const STICKY_SETS = { frontend: "sticky-frontends", nodePort: "sticky-nodeports" } as const;
/** Base name of the maps that remember their clients' endpoints. */
export const CLIENTS = "clients";

/** `endpoints-3`, `clients-10800`, `allowed-sources-24`. */
export function numbered(base: string, number: number): string {
  return `${base}-${number}`;
}

/** The number in a name with this base; undefined for other names. */
export function numberIn(name: string, base: string): number | undefined {
  // Called for every element of a change; few sets have such a name.
  if (!name.startsWith(base)) return undefined;
  const parts = numberedName(name);
  return parts?.base === base ? parts.number : undefined;
}
