/** What the planners need to know of configuration and node: the daemon, and what plans without a kernel, ask here. Pure. */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { OfflineNode } from "../../inspect/offline-node.ts";
import type { PlannedNode } from "../../model/node-plan-config.ts";
import { nodePlanConfig } from "../shared/masquerade-bit.ts";
import { schedulerOf } from "./config.ts";
import { nodeAddressFacts } from "./node-facts.ts";
import type { PlanConfig, PlanFacts } from "./plan-service-port.ts";

export function planConfigOf(config: KubeProxyConfig, node: PlannedNode): PlanConfig {
  return { ...nodePlanConfig(node, config, config.iptables), scheduler: schedulerOf(config.ipvs) };
}

/** Without a kernel, the node's addresses are those that its object lists. */
export function planInput(
  config: KubeProxyConfig,
  node: OfflineNode,
): { readonly config: PlanConfig; readonly facts: PlanFacts } {
  const { zone, hostAddresses, nodePortAddresses } = node;
  const addresses = hostAddresses.map((address) => ({ address, prefixLength: 0, link: "" }));
  const { nodeAddresses, nodePortIPs } = nodeAddressFacts(addresses, nodePortAddresses);
  return { config: planConfigOf(config, node), facts: { zone, nodeAddresses, nodePortIPs } };
}
