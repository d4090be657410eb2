/** Input of the iptables planners besides Services: configuration and facts of the node, for one family. */

import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { KernelFeature } from "../../contract/rendering.ts";
import type { NodePlanConfig, PlannedNode } from "../../model/node-plan-config.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import { nodePlanConfig } from "../shared/masquerade-bit.ts";

/** Constant during the life of the process. */
export interface PlanConfig extends NodePlanConfig {
  /** The effective value: always false for IPv6 (iptables-operation.md §12.1). */
  readonly localhostNodePorts: boolean;
  /** `nf_conntrack_tcp_be_liberal` was set at start, so INVALID packets are not dropped. */
  readonly conntrackLiberal: boolean;
}

/** May change between syncs; a change of the static rules requires a full sync. */
export interface PlanFacts {
  readonly zone: string | undefined;
  readonly nodePortIPs: NodePortIPs;
  /** Counters known to exist; rules must not name others (iptables-operation.md §12.2). */
  readonly counters: { readonly ctStateInvalid: boolean; readonly localhostNodePorts: boolean };
  /** Rules can match a hash of the client; without, a Service that asks for one has its endpoints at random. @default true */
  readonly canHash?: boolean | undefined;
  /** Large-cluster mode: no comments in endpoint rules (iptables.md §8). */
  readonly isLargeCluster: boolean;
}

/** nfacct counter names, each at most 31 characters. */
export const COUNTERS = {
  ctStateInvalid: "ct_state_invalid_dropped_pkts",
  localhostNodePorts: "localhost_nps_accepted_pkts",
} as const;

/** With more endpoints than this, summed over service ports, a cluster is large (iptables.md §8). */
export const LARGE_CLUSTER_ENDPOINTS = 1000;

/** @param conntrackLiberal the kernel's current setting. */
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
      canHash: !missing.has("xt_bpf"),
      isLargeCluster: node.state.endpointCount > LARGE_CLUSTER_ENDPOINTS,
    },
  };
}
