/** The input of the iptables planners besides services: configuration and facts of the node, one family. */
import type { NodePlanConfig } from "../../model/node-plan-config.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";

/** Constant for the life of the process. */
export interface PlanConfig extends NodePlanConfig {
  /** Effective only: always false for IPv6 (iptables-operation.md §12.1). */
  readonly localhostNodePorts: boolean;
  /** `nf_conntrack_tcp_be_liberal` was set at start: no INVALID drop. */
  readonly conntrackLiberal: boolean;
}

/** May differ from sync to sync; a difference makes the sync full. */
export interface PlanFacts {
  readonly zone: string | undefined;
  readonly nodePortIPs: NodePortIPs;
  /** Counters known to exist; rules name no others (iptables-operation.md §12.2). */
  readonly counters: { readonly ctStateInvalid: boolean; readonly localhostNodePorts: boolean };
  /** Large-cluster mode: no comments in endpoint rules (iptables.md §8). */
  readonly isLargeCluster: boolean;
}

/** nfacct counter names, each at most 31 characters. */
export const COUNTERS = {
  ctStateInvalid: "ct_state_invalid_dropped_pkts",
  localhostNodePorts: "localhost_nps_accepted_pkts",
} as const;

/** More endpoints than this, summed over service ports, is a large cluster (iptables.md §8). */
export const LARGE_CLUSTER_ENDPOINTS = 1000;
