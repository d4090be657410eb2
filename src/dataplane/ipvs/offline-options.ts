/** What the planners need to know of a node without its kernel. Pure. */
import type { OfflineNode } from "../../inspect/offline-node.ts";
import { nodeAddressFacts } from "./node-facts.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";

/** What the configuration and the node's tools say. */
export type PlanChoices = Pick<PlanConfig, "masqueradeAll" | "masqueradeMark" | "scheduler">;

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
    facts: factsOf(node),
  };
}

/** Without a kernel, the node's addresses are those that its object lists. */
function factsOf({ zone, hostAddresses, nodePortAddresses }: OfflineNode): PlanFacts {
  const addresses = hostAddresses.map((address) => ({ address, prefixLength: 0, link: "" }));
  const { nodeAddresses, nodePortIPs } = nodeAddressFacts(addresses, nodePortAddresses);
  return { zone, nodeAddresses, nodePortIPs };
}
