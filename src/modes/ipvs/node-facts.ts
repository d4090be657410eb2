/** Interprets the addresses of the node's devices for the ipvs mode: reference ipvs.md §2, §3. */

import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import { fullLength, type LinkAddress } from "../../kernel/route/links.ts";
import type { PlannedNode } from "../../model/node-plan-config.ts";
import { type NodePortAddresses, nodePortIPs } from "../../model/node-port-addresses.ts";
import { type Cidr, type IpAddress, isLinkLocalV6, isLoopback, parseCidr } from "../../net/ip.ts";
import { nodePlanConfig } from "../shared/masquerade-bit.ts";
import { schedulerOf } from "./config.ts";
import { DUMMY_DEVICE } from "./names.ts";
import type { PlanConfig, PlanFacts } from "./plan-service-port.ts";

type NodePlaces = Pick<PlanFacts, "nodeAddresses" | "nodePortIPs">;

/** The addresses of one family, by device. */
export interface NodeAddressFacts extends NodePlaces {
  /** On kube-ipvs0. */
  readonly bound: ReadonlySet<IpAddress>;
  /** On kube-ipvs0 with the prefix length of a network: not ours. */
  readonly foreign: readonly LinkAddress[];
  /** The device of each of `nodeAddresses`; any one if several have it. */
  readonly devices: ReadonlyMap<IpAddress, string>;
  /** The device of each network that these devices are in. */
  readonly networks: ReadonlyMap<Cidr, string>;
}

/** The node's addresses, as a sync reads them. */
export interface NodeState extends NodeAddressFacts {
  /** Destinations of local routes. */
  readonly routed: ReadonlySet<IpAddress>;
}

/** The findings of the last full sync. */
export interface IpvsFacts extends NodeState, PlanFacts {}

/** @param addresses of the family, of all devices. */
export function nodeAddressFacts(
  addresses: readonly LinkAddress[],
  nodePortAddresses: NodePortAddresses,
): NodeAddressFacts {
  const bound = new Set<IpAddress>();
  const foreign: LinkAddress[] = [];
  const others: IpAddress[] = [];
  const devices = new Map<IpAddress, string>();
  const networks = new Map<Cidr, string>();
  for (const found of addresses) {
    const { address, link, prefixLength } = found;
    if (link !== DUMMY_DEVICE) {
      others.push(address);
      if (isLoopback(address) || isLinkLocalV6(address)) continue;
      devices.set(address, link);
      const network = parseCidr(`${address}/${prefixLength}`);
      if (network !== undefined && prefixLength < fullLength(address)) networks.set(network, link);
    } else if (isLinkLocalV6(address)) continue;
    else if (prefixLength === fullLength(address)) bound.add(address);
    else foreign.push(found);
  }
  const nodeAddresses = new Set(devices.keys());
  const wanted = nodePortIPs(nodePortAddresses, others);
  const ips = wanted.kind === "all" ? [...nodeAddresses].sort() : wanted.ips.filter((ip) => !isLoopback(ip));
  return { bound, foreign, nodeAddresses, nodePortIPs: ips, devices, networks };
}

/** Whether two facts lead to the same plans. */
export function equalAddressFacts(a: NodePlaces, b: NodePlaces): boolean {
  return (
    a.nodeAddresses.size === b.nodeAddresses.size &&
    [...a.nodeAddresses].every((address) => b.nodeAddresses.has(address)) &&
    a.nodePortIPs.join() === b.nodePortIPs.join()
  );
}

export function planConfigOf(config: KubeProxyConfig, node: PlannedNode): PlanConfig {
  return { ...nodePlanConfig(node, config, config.iptables), scheduler: schedulerOf(config.ipvs) };
}

/** Without a kernel, the node's addresses are those of its Node object. */
export function planInput(
  config: KubeProxyConfig,
  node: OfflineNode,
): { readonly config: PlanConfig; readonly facts: PlanFacts } {
  const { zone, hostAddresses, nodePortAddresses, otherNodes } = node;
  const addresses = hostAddresses.map((address) => ({ address, prefixLength: 0, link: "" }));
  const { nodeAddresses, nodePortIPs } = nodeAddressFacts(addresses, nodePortAddresses);
  return {
    config: planConfigOf(config, node),
    facts: { zone, nodeAddresses, nodePortIPs, ...(otherNodes && { otherNodes }) },
  };
}
