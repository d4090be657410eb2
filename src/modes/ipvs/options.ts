/** Dependencies of the ipvs mode, for one family. */
import type { Clock } from "../../async/clock.ts";
import type { Iptables } from "../../kernel/iptables/iptables.ts";
import type { Links } from "../../kernel/route/links.ts";
import type { Logger } from "../../logging/logger.ts";
import type { NodePortAddresses } from "../../model/node-port-addresses.ts";
import type { Cidr } from "../../net/ip.ts";
import type { RestoreMetrics } from "../shared/iptables-metrics.ts";
import type { Ipset } from "./ipset/ipset.ts";
import type { Ipvs } from "./kernel/ipvs.ts";
import type { PlanConfig } from "./plan-service-port.ts";

export interface IpvsOptions {
  readonly config: PlanConfig;
  readonly ipvs: Ipvs;
  readonly ipset: Ipset;
  readonly links: Links;
  readonly iptables: Iptables;
  readonly nodePortAddresses: NodePortAddresses;
  /** `ipvs.excludeCIDRs`: virtual servers there are never deleted. */
  readonly excludeCIDRs: readonly Cidr[];
  /** Restores the parameters and timeouts that are lost when the IPVS module is unloaded. Called with every full sync. */
  readonly restoreSettings: () => Promise<void>;
  readonly metrics: RestoreMetrics;
  /** `syncPeriod`: how often the kernel is compared with the wanted state. */
  readonly verifyPeriodMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}
