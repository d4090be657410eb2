/** What the planners need to know of a node without its kernel. Pure. */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { OfflineNode } from "../../inspect/offline-node.ts";
import type { KernelFeature } from "../rendering.ts";
import { masqueradeMarkOf } from "../shared/masquerade-bit.ts";
import { LARGE_CLUSTER_ENDPOINTS, type PlanConfig, type PlanFacts } from "./plan-options.ts";

export interface OfflineOptions {
  readonly config: PlanConfig;
  readonly facts: PlanFacts;
}

/** @param missing what the node's kernel and tools lack. */
export function offlineOptions(
  node: OfflineNode,
  config: KubeProxyConfig,
  missing: ReadonlySet<KernelFeature> = new Set(),
): OfflineOptions {
  const { family, nodePortAddresses } = node;
  const hasCounters = !missing.has("nfacct");
  return {
    config: {
      family,
      nodeName: node.name,
      nodeIP: node.nodeIP,
      masqueradeMark: masqueradeMarkOf(config.iptables),
      masqueradeAll: config.masqueradeAll,
      detector: node.detector,
      localhostNodePorts: family === "IPv4" && config.iptables.localhostNodePorts && nodePortAddresses.containsLoopback,
      conntrackLiberal: config.conntrack.tcpBeLiberal,
    },
    facts: {
      zone: node.zone,
      nodePortIPs: node.nodePortIPs,
      counters: { ctStateInvalid: hasCounters, localhostNodePorts: hasCounters },
      isLargeCluster: node.state.endpointCount > LARGE_CLUSTER_ENDPOINTS,
    },
  };
}
