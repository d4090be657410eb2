/** Names that only the flat layout has: docs/reference/flat-nftables.md. Names of every layout are in `../names.ts`. */

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
} as const;

export type EndpointMap = (typeof ENDPOINT_MAPS)[keyof typeof ENDPOINT_MAPS];

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
  return endpointMapOf(map) !== undefined || numberIn(map, CLIENTS) !== undefined;
}

/** The parts of a name that ends in a number: `endpoints-3`. */
interface NumberedName {
  readonly base: string;
  readonly number: number;
}

function numberedName(name: string): NumberedName | undefined {
  const at = name.lastIndexOf("-");
  const digits = name.slice(at + 1);
  return /^[1-9]\d{0,9}$/.test(digits) ? { base: name.slice(0, at), number: Number(digits) } : undefined;
}

/** The base name and the slots of an endpoint map; undefined for other names. */
export function endpointMapOf(name: string): { readonly map: EndpointMap; readonly slots: number } | undefined {
  const { base = "", number: slots = 0 } = numberedName(name) ?? {};
  return endpointMaps.has(base) ? { map: base as EndpointMap, slots } : undefined; // it is one of them
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
