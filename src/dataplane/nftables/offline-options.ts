/** What the planners need to know of a node without its kernel. Pure. */
import type { KubeProxyConfig } from "../../config/config.ts";
import { releaseOf } from "../../config/release.ts";
import type { OfflineNode } from "../../inspect/offline-node.ts";
import { withoutLoopback } from "../../model/without-loopback.ts";
import { type Cidr, familyOf, parseCidr } from "../../net/ip.ts";
import { masqueradeMarkOf } from "../shared/masquerade-bit.ts";
import { localhostServiceOf } from "./localhost-node-ports.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";

export interface OfflineOptions {
  readonly config: PlanConfig;
  readonly facts: PlanFacts;
}

export function offlineOptions(node: OfflineNode, config: KubeProxyConfig): OfflineOptions {
  return {
    config: {
      masqueradeAll: config.masqueradeAll,
      masqueradeMark: masqueradeMarkOf(config.nftables),
      release: releaseOf(config),
      family: node.family,
      nodeName: node.name,
      nodeIP: node.nodeIP,
      detector: node.detector,
      rejectedAtLocalhost: localhostServiceOf(config, node.nodePortAddresses)?.rejected ?? [],
    },
    facts: {
      zone: node.zone,
      nodePortIPs: withoutLoopback(node.nodePortIPs),
      serviceCIDRs: serviceCIDRsOf(node),
    },
  };
}

function serviceCIDRsOf({ serviceCIDRs, family }: OfflineNode): Cidr[] {
  const cidrs: Cidr[] = [];
  for (const text of serviceCIDRs) {
    const cidr = parseCidr(text);
    if (cidr !== undefined && familyOf(cidr) === family && !cidrs.includes(cidr)) cidrs.push(cidr);
  }
  return cidrs.sort();
}
