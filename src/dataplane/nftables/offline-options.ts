/** What the planners need to know of a node without its kernel. Pure. */
import type { OfflineNode } from "../../inspect/offline-node.ts";
import { withoutLoopback } from "../../model/without-loopback.ts";
import { type Cidr, familyOf, parseCidr } from "../../net/ip.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";

/** What the configuration says. */
export type PlanChoices = Pick<PlanConfig, "masqueradeAll" | "masqueradeMark">;

export interface OfflineOptions {
  readonly config: PlanConfig;
  readonly facts: PlanFacts;
}

export function offlineOptions(node: OfflineNode, choices: PlanChoices): OfflineOptions {
  return {
    config: {
      ...choices,
      family: node.family,
      nodeName: node.name,
      nodeIP: node.nodeIP,
      detector: node.detector,
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
