/**
 * Whose an endpoint is. HNS keeps no owner that kube-proxy sets, so this goes by what is seen, and what shows no sign of ours is never
 * touched; of load balancers `host-state.ts` tells. Pure. Reference windows-practice.md §8.1.
 */
import { type HcnEndpoint, plainMac } from "../../kernel/hcn/documents.ts";
import { familyOf, type IpAddress, type IpFamily, ipBytes } from "../../net/ip.ts";

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
