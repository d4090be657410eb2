/** What the planners of every mode need to know of the configuration and the node: one family, for the life of the process. */
import type { IpAddress, IpFamily } from "../net/ip.ts";
import type { LocalTrafficDetector } from "./local-traffic-detector.ts";

export interface NodePlanConfig {
  readonly family: IpFamily;
  readonly nodeName: string;
  /** This family's effective node IP; loopback when unknown. */
  readonly nodeIP: IpAddress;
  /** `1 << masqueradeBit`, unsigned. */
  readonly masqueradeMark: number;
  readonly masqueradeAll: boolean;
  readonly detector: LocalTrafficDetector;
}
