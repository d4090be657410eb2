/** For modes in which node ports cannot answer on loopback addresses (reference nftables.md §8). */
import { isLoopback } from "../net/ip.ts";
import type { NodePortIPs } from "./node-port-addresses.ts";

/** The same destinations but for loopback ones. `all` stays: rules of such modes leave loopback out by themselves. Pure. */
export function withoutLoopback(destinations: NodePortIPs): NodePortIPs {
  if (destinations.kind === "all" || !destinations.ips.some(isLoopback)) return destinations;
  return { kind: "ips", ips: destinations.ips.filter((ip) => !isLoopback(ip)) };
}
