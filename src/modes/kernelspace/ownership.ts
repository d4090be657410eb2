/**
 * The ownership of endpoints. HNS stores no owner for kube-proxy, so this judges by visible properties, and endpoints that do not look
 * like ours are never touched; for load balancers see `host-state.ts`. Reference windows-practice.md §8.1.
 */

import { familyOf, type IpAddress, type IpFamily, ipBytes } from "../../net/ip.ts";
import { type HcnEndpoint, plainMac } from "./hcn/documents.ts";

/**
 * Whether an endpoint is the source VIP that upstream's or this kube-proxy created because the CNI plugin had not: it
 * has the host's MAC address and the name that HNS gives.
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
 * Whether an endpoint of our network is a remote one that upstream's or this kube-proxy created: it has the MAC address
 * derived from its IP address or, for a cluster IP, the host's.
 */
export function isOurRemoteEndpoint(endpoint: HcnEndpoint, family: IpFamily, hostMacs: ReadonlySet<string>): boolean {
  const { isRemote, addresses, mac } = endpoint;
  const [address] = addresses;
  if (!isRemote || address === undefined || addresses.length > 1 || familyOf(address) !== family) return false;
  return mac === plainMac(remoteMac(address)) || hostMacs.has(mac);
}

/** The MAC address of a remote endpoint (windows.md §2.4), as sent: `02-11-c0-a8-02-03`. Of IPv6 addresses only the last 32 bits count, in reverse. */
export function remoteMac(address: IpAddress): string {
  const bytes = ipBytes(address);
  const counted = familyOf(address) === "IPv4" ? bytes : bytes.slice(-4).reverse();
  return ["02", "11", ...Array.from(counted, (byte) => byte.toString(16).padStart(2, "0"))].join("-");
}
