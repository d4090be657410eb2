/**
 * The addresses of this node on which node ports answer, for one family (reference node.md §9). The kernel layer reads
 * the interface addresses and passes them in.
 */
import {
  type Cidr,
  cidrContains,
  familyOf,
  type IpAddress,
  type IpFamily,
  ipFromBytes,
  isLoopback,
  isZeroCidr,
  parseCidr,
  splitCidr,
  zeroCidr,
} from "../net/ip.ts";

/** One family's view of the configured list. */
export interface NodePortAddresses {
  readonly family: IpFamily;
  /** Never empty; only the zero prefix if all addresses match. */
  readonly cidrs: readonly Cidr[];
  readonly matchesAll: boolean;
  /** Node ports are reachable through 127.0.0.0/8; always false for IPv6. */
  readonly containsLoopback: boolean;
  /** Some prefix starts at a loopback address, so loopback is listed explicitly and not just contained (KEP-6032). */
  readonly namesLoopback: boolean;
}

/** `all`: every local address, including later ones. */
export type NodePortIPs = { readonly kind: "all" } | { readonly kind: "ips"; readonly ips: readonly IpAddress[] };

const LOOPBACK_NETWORK = ipFromBytes(Uint8Array.of(127, 0, 0, 0));

/**
 * Parses `nodePortAddresses`, in which prefixes have already replaced keywords. A list without a prefix of this family
 * matches all of the family's addresses. Skips values that are not prefixes, which validation refuses.
 */
export function nodePortAddresses(family: IpFamily, configured: readonly string[]): NodePortAddresses {
  const parsed = configured.map((text) => parseCidr(text.trim())).filter((cidr) => cidr !== undefined);
  const own = parsed.filter((cidr) => familyOf(cidr) === family);
  const matchesAll = own.length === 0 || own.some(isZeroCidr);
  const cidrs = matchesAll ? [zeroCidr(family)] : own;
  return {
    family,
    cidrs,
    matchesAll,
    containsLoopback:
      family === "IPv4" &&
      cidrs.some((cidr) => isLoopback(splitCidr(cidr).address) || cidrContains(cidr, LOOPBACK_NETWORK)),
    namesLoopback: own.some((cidr) => isLoopback(splitCidr(cidr).address)),
  };
}

/**
 * Selects the node-port addresses from those of the host's interfaces (including loopback), sorted and without
 * duplicates. Call it again whenever interfaces may have changed.
 */
export function nodePortIPs(addresses: NodePortAddresses, interfaceAddresses: Iterable<IpAddress>): NodePortIPs {
  if (addresses.matchesAll) return { kind: "all" };
  const ips = new Set<IpAddress>();
  for (const ip of interfaceAddresses) {
    if (addresses.cidrs.some((cidr) => cidrContains(cidr, ip))) ips.add(ip);
  }
  return { kind: "ips", ips: [...ips].sort() };
}

/**
 * Removes loopback addresses, for modes whose node ports cannot answer there (reference nftables.md §8). Keeps `all`:
 * the rules of those modes exclude loopback themselves.
 */
export function withoutLoopback(destinations: NodePortIPs): NodePortIPs {
  if (destinations.kind === "all" || !destinations.ips.some(isLoopback)) return destinations;
  return { kind: "ips", ips: destinations.ips.filter((ip) => !isLoopback(ip)) };
}
