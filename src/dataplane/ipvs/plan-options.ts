/** What the ipvs planners need to know besides the services: configuration and facts of the node, one family. */
import type { NodePlanConfig } from "../../model/node-plan-config.ts";
import type { IpAddress } from "../../net/ip.ts";

/** Constant for the life of the process. */
export interface PlanConfig extends NodePlanConfig {
  /** A scheduler's name in the kernel: `rr`, `mh`, … */
  readonly scheduler: string;
}

/** May differ from sync to sync; a difference makes the sync full. */
export interface PlanFacts {
  readonly zone: string | undefined;
  /** Addresses of devices other than kube-ipvs0, without loopback and link-local ones: never bound to kube-ipvs0. */
  readonly nodeAddresses: ReadonlySet<IpAddress>;
  /** Addresses that node ports answer on, sorted. */
  readonly nodePortIPs: readonly IpAddress[];
}
