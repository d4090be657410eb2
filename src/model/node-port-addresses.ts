/**
 * The addresses of this node that node ports answer on, for one family: reference node.md §9. The interface addresses
 * are handed in; reading them is the kernel layer's business.
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

/** The configured list as one family sees it. */
export interface NodePortAddresses {
  readonly family: IpFamily;
  /** Never empty; the zero prefix alone when all addresses match. */
  readonly cidrs: readonly Cidr[];
  readonly matchesAll: boolean;
  /** Node ports are reachable through 127.0.0.0/8; always false for IPv6. */
  readonly containsLoopback: boolean;
  /** Some prefix of the list begins at a loopback address: such are meant, and not only contained (KEP-6032). */
  readonly namesLoopback: boolean;
}

/** `all` stands for every local address, also those that appear later. */
export type NodePortIPs = { readonly kind: "all" } | { readonly kind: "ips"; readonly ips: readonly IpAddress[] };

const LOOPBACK_NETWORK = ipFromBytes(Uint8Array.of(127, 0, 0, 0));

/**
 * Reads `nodePortAddresses`, whose words have been replaced by prefixes. A list without a prefix of this family
 * matches all of the family's addresses. Values that are not prefixes are skipped; validation has refused them. Pure.
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
    containsLoopback: family === "IPv4" && cidrs.some(touchesLoopback),
    namesLoopback: own.some((cidr) => isLoopback(splitCidr(cidr).address)),
  };
}

/**
 * The node-port addresses among those of the host's interfaces (loopback included), sorted and without duplicates.
 * Pure; call it again whenever interfaces may have changed.
 */
export function nodePortIPs(addresses: NodePortAddresses, interfaceAddresses: Iterable<IpAddress>): NodePortIPs {
  if (addresses.matchesAll) return { kind: "all" };
  const ips = new Set<IpAddress>();
  for (const ip of interfaceAddresses) {
    if (addresses.cidrs.some((cidr) => cidrContains(cidr, ip))) ips.add(ip);
  }
  return { kind: "ips", ips: [...ips].sort() };
}

/** The prefix lies in 127.0.0.0/8, or is wide enough to contain its network address. */
function touchesLoopback(cidr: Cidr): boolean {
  return isLoopback(splitCidr(cidr).address) || cidrContains(cidr, LOOPBACK_NETWORK);
}

/**
 * The same destinations without loopback ones, for modes in which node ports cannot answer there (reference nftables.md §8). `all`
 * stays: rules of such modes leave loopback out by themselves. Pure.
 */
export function withoutLoopback(destinations: NodePortIPs): NodePortIPs {
  if (destinations.kind === "all" || !destinations.ips.some(isLoopback)) return destinations;
  return { kind: "ips", ips: destinations.ips.filter((ip) => !isLoopback(ip)) };
}
