/** Dependencies of the kernelspace mode, for one family. */
import type { Clock } from "../../async/clock.ts";
import type { Logger } from "../../logging/logger.ts";
import type { IpAddress } from "../../net/ip.ts";
import type { Hcn } from "./hcn/hcn.ts";
import type { KernelspaceMetrics } from "./metrics.ts";
import type { PlanConfig } from "./plan-service-port.ts";

export interface KernelspaceOptions {
  readonly config: PlanConfig;
  readonly hcn: Hcn;
  /** HNS can modify load balancers in place. */
  readonly canModify: boolean;
  readonly networkName: string;
  /** `winkernel.rootHnsEndpointName`; undefined if health checks are not forwarded. */
  readonly rootName: string | undefined;
  /** The MAC address of the interface with the node's address; empty without an overlay. */
  readonly hostMac: string;
  /** The MAC addresses of all interfaces, in lower case with colons. */
  readonly hostMacs: ReadonlySet<string>;
  /** Whether an interface of the host has an address. */
  isHostAddress(address: IpAddress): boolean;
  readonly metrics: KernelspaceMetrics;
  /** `syncPeriod`: the longest pause between two checks of HNS, and between two attempts. */
  readonly syncPeriodMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}
