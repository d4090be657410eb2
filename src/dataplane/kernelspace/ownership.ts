/**
 * Whose a load balancer or an endpoint is. HNS keeps no owner that kube-proxy sets, so this goes by what is seen, and what shows no
 * sign of ours is never touched. Pure. Reference windows-practice.md §8.1.
 */
import { type HcnEndpoint, type HcnLoadBalancer, MAP_EXTERNAL_IP, plainMac } from "../../kernel/hcn/documents.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import { type Cidr, cidrContains, familyOf, type IpAddress, type IpFamily, ipBytes } from "../../net/ip.ts";

/** Where the endpoints of the host are. */
export interface EndpointPlaces {
  /** On the network of the cluster. */
  isOurs(id: Guid): boolean;
  /** On another network. */
  isElsewhere(id: Guid): boolean;
}

/** Port-mapping flags that kube-proxy and this program write (windows.md §2.6). */
const WRITTEN_FLAGS: ReadonlySet<number> = new Set([0, 12, 16, 18, 28]);
const WRITTEN_DISTRIBUTIONS: ReadonlySet<number> = new Set([0, 2]);

/**
 * Whether a load balancer is another program's for sure, so that it is not touched at a frontend of a Service either: it leads to
 * another network, has several addresses or ports, or is of another schema than ours.
 */
export function isForeign(one: HcnLoadBalancer, places: EndpointPlaces): boolean {
  const { endpoints, frontendVips, mappings, otherSchema } = one;
  if (otherSchema !== undefined) return true;
  return frontendVips.length > 1 || mappings.length > 1 || endpoints.some((id) => places.isElsewhere(id));
}

/** Whether a load balancer that no Service wants is left by kube-proxy or by an earlier run, so that it may go. */
export function isLeftover(one: HcnLoadBalancer, places: EndpointPlaces, serviceCidrs: readonly Cidr[]): boolean {
  const { endpoints, frontendVips, mappings } = one;
  if (isForeign(one, places)) return false;
  const [mapping] = mappings;
  // A failed creation leaves one without mappings (kubernetes #141488).
  if (mapping === undefined) return endpoints.length === 0 ? frontendVips.length === 0 : hasOurs(endpoints, places);
  if (!WRITTEN_FLAGS.has(mapping.flags)) return false;
  if (!WRITTEN_DISTRIBUTIONS.has(mapping.distribution)) return false;
  if (hasOurs(endpoints, places)) return true;
  // Its endpoints are all gone: where it answers, or how, must tell.
  const [vip] = frontendVips;
  if (vip !== undefined && serviceCidrs.some((cidr) => cidrContains(cidr, vip))) return true;
  return (mapping.flags & MAP_EXTERNAL_IP) !== 0;
}

function hasOurs(endpoints: readonly Guid[], places: EndpointPlaces): boolean {
  return endpoints.some((id) => places.isOurs(id));
}

/**
 * Whether an endpoint is the source VIP that kube-proxy, of either version, has made because the CNI plugin had not: that one has the
 * host's MAC address, and the name that HNS gives.
 */
export function isOurSourceVip(
  { isRemote, addresses, mac, name }: HcnEndpoint,
  sourceVip: IpAddress | undefined,
  hostMacs: ReadonlySet<string>,
): boolean {
  const isAtIt = addresses.length === 1 && addresses[0] === sourceVip;
  return !isRemote && isAtIt && hostMacs.has(mac) && (name === "" || name === "Ethernet");
}

/**
 * Whether an endpoint of our network stands for an address elsewhere and was made by kube-proxy, of either version: it has the MAC
 * address that is made from its address, or as that of a cluster IP the host's.
 */
export function isOurRemoteEndpoint(endpoint: HcnEndpoint, family: IpFamily, hostMacs: ReadonlySet<string>): boolean {
  const { isRemote, addresses, mac } = endpoint;
  const [address] = addresses;
  if (!isRemote || address === undefined || addresses.length > 1 || familyOf(address) !== family) return false;
  return mac === plainMac(remoteMac(address)) || hostMacs.has(mac);
}

/** The MAC address of an endpoint that stands for an address elsewhere (windows.md §2.4), as it is sent: `02-11-c0-a8-02-03`. Of IPv6 addresses only the last 32 bits count, in reverse. Pure. */
export function remoteMac(address: IpAddress): string {
  const bytes = ipBytes(address);
  const counted = familyOf(address) === "IPv4" ? bytes : bytes.slice(-4).reverse();
  return ["02", "11", ...Array.from(counted, (byte) => byte.toString(16).padStart(2, "0"))].join("-");
}
