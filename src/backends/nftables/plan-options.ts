/** What the nftables planners need to know besides the services: configuration and facts of the node, one family. */
import type { LocalTrafficDetector } from "../../model/local-traffic-detector.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import type { Cidr, IpAddress, IpFamily } from "../../net/ip.ts";

/** Constant for the life of the process. */
export interface PlanConfig {
  readonly family: IpFamily;
  readonly nodeName: string;
  /** This family's effective node IP; loopback when unknown. */
  readonly nodeIP: IpAddress;
  /** `1 << masqueradeBit`, unsigned. */
  readonly masqueradeMark: number;
  readonly masqueradeAll: boolean;
  readonly detector: LocalTrafficDetector;
}

/** May differ from sync to sync. */
export interface PlanFacts {
  readonly zone: string | undefined;
  readonly nodePortIPs: NodePortIPs;
  /** This family's, sorted. */
  readonly serviceCIDRs: readonly Cidr[];
}
