/** What the planners need to know of configuration and node: the daemon, and what plans without a kernel, ask here. Pure. */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { OfflineNode } from "../../inspect/offline-node.ts";
import type { PlannedNode } from "../../model/node-plan-config.ts";
import type { KernelFeature } from "../rendering.ts";
import { nodePlanConfig } from "../shared/masquerade-bit.ts";
import { LARGE_CLUSTER_ENDPOINTS, type PlanConfig, type PlanFacts } from "./plan-options.ts";

/** @param conntrackLiberal as the kernel has it now. */
export function planConfigOf(config: KubeProxyConfig, node: PlannedNode, conntrackLiberal: boolean): PlanConfig {
  const { family, nodePortAddresses } = node;
  return {
    ...nodePlanConfig(node, config, config.iptables),
    localhostNodePorts: family === "IPv4" && config.iptables.localhostNodePorts && nodePortAddresses.containsLoopback,
    conntrackLiberal,
  };
}

/** @param missing what the node's kernel and tools lack. */
export function planInput(
  config: KubeProxyConfig,
  node: OfflineNode,
  missing: ReadonlySet<KernelFeature> = new Set(),
): { readonly config: PlanConfig; readonly facts: PlanFacts } {
  const hasCounters = !missing.has("nfacct");
  return {
    config: planConfigOf(config, node, config.conntrack.tcpBeLiberal),
    facts: {
      zone: node.zone,
      nodePortIPs: node.nodePortIPs,
      counters: { ctStateInvalid: hasCounters, localhostNodePorts: hasCounters },
      isLargeCluster: node.state.endpointCount > LARGE_CLUSTER_ENDPOINTS,
    },
  };
}
