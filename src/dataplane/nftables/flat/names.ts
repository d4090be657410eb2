/** Names of what only the flat layout has: docs/reference/flat-nftables.md. Those that every layout has are in `../names.ts`. */

/** Sets that are always there. A frontend is `address . protocol . port`, a node port `protocol . port`. */
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

/** Chains that only this layout has; `services` and the checks are those of every layout. */
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

/** The lookups that maps of endpoints answer; a map's name is one of these and its number of slots. */
export const ENDPOINT_MAPS = {
  /** By frontend. */
  frontend: "endpoints",
  /** By frontend of the Local policy, for clients of this node. */
  frontendCluster: "cluster-endpoints",
  /** By node port. */
  nodePort: "nodeport-endpoints",
  /** By node port of the Local policy, for clients of this node. */
  nodePortCluster: "nodeport-cluster-endpoints",
} as const;

export type EndpointMap = (typeof ENDPOINT_MAPS)[keyof typeof ENDPOINT_MAPS];

const endpointMaps: ReadonlySet<string> = new Set(Object.values(ENDPOINT_MAPS));

/** Chains that exist while there are endpoint maps of a size, or clients of a timeout: the names of these with a word before them. */
const PICK = "pick";
export const REMEMBER = { frontend: "remember-frontends", nodePort: "remember-nodeports" } as const;

/** `pick-endpoints-3`, `pick-clients-10800`. Pure. */
export function pickChain(map: string): string {
  return `${PICK}-${map}`;
}

/** Whether a chain exists for a size or a timeout. Pure. */
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

/** The lookup and the slots of a map of endpoints; undefined for other names. Pure. */
export function endpointMapOf(name: string): { readonly map: EndpointMap; readonly slots: number } | undefined {
  const { base = "", number: slots = 0 } = numberedName(name) ?? {};
  return endpointMaps.has(base) ? { map: base as EndpointMap, slots } : undefined; // it is one of them
}

/** Who may ask at restricted frontends, by the number of bits of the address that are looked at: `allowed-sources-24`. */
export const ALLOWED_SOURCES = "allowed-sources";

/** Frontends and node ports with session affinity of so many seconds. */
export const STICKY_SETS = { frontend: "sticky-frontends", nodePort: "sticky-nodeports" } as const;
/** Where their clients' endpoints are remembered. */
export const CLIENTS = "clients";

/** `endpoints-3`, `clients-10800`, `allowed-sources-24`. Pure. */
export function numbered(base: string, number: number): string {
  return `${base}-${number}`;
}

/** The number in a name of this base; undefined for other names. Pure. */
export function numberIn(name: string, base: string): number | undefined {
  // Asked for every element of a change; few have such a name.
  if (!name.startsWith(base)) return undefined;
  const parts = numberedName(name);
  return parts?.base === base ? parts.number : undefined;
}
