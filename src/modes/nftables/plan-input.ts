/** The planners' input from configuration and node, for the daemon and for plans without a kernel. */
import { countedOf, type KubeProxyConfig } from "../../contract/config/config.ts";
import { releaseOf } from "../../contract/config/release.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { PlannedNode } from "../../model/node-plan-config.ts";
import { withoutLoopback } from "../../model/node-port-addresses.ts";
import { nodePlanConfig } from "../shared/masquerade-bit.ts";
import { localhostServiceOf } from "./localhost-node-ports.ts";
import { type PlanConfig, type PlanFacts, planFacts } from "./plan-options.ts";

export function planConfigOf(config: KubeProxyConfig, node: PlannedNode): PlanConfig {
  return {
    ...nodePlanConfig(node, config, config.nftables),
    release: releaseOf(config),
    rejectedAtLocalhost: localhostServiceOf(config, node.nodePortAddresses)?.rejected ?? [],
    counted: countedOf(config.connections),
  };
}

export function planInput(
  config: KubeProxyConfig,
  node: OfflineNode,
): { readonly config: PlanConfig; readonly facts: PlanFacts } {
  const facts = planFacts(node, node.family, withoutLoopback(node.nodePortIPs));
  return { config: planConfigOf(config, node), facts };
}
