/** What the nftables planners need to know besides the services: configuration and facts of the node, one family. */
import type { NodePlanConfig } from "../../model/node-plan-config.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import type { Cidr } from "../../net/ip.ts";

/** Constant for the life of the process. */
export type PlanConfig = NodePlanConfig;

/** May differ from sync to sync. */
export interface PlanFacts {
  readonly zone: string | undefined;
  readonly nodePortIPs: NodePortIPs;
  /** This family's, sorted. */
  readonly serviceCIDRs: readonly Cidr[];
}
