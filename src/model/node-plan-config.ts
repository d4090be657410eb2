/** What the planners of every mode need to know of the configuration and the node: one family, for the life of the process. */
import type { IpAddress, IpFamily } from "../net/ip.ts";
import type { LocalTrafficDetector } from "./local-traffic-detector.ts";
import type { NodePortAddresses } from "./node-port-addresses.ts";

/** One family of a node, as the daemon finds it and as a folder of manifests has it. */
export interface PlannedNode {
  readonly family: IpFamily;
  readonly name: string;
  /** This family's effective node IP; loopback when unknown. */
  readonly nodeIP: IpAddress;
  readonly detector: LocalTrafficDetector;
  readonly nodePortAddresses: NodePortAddresses;
}

export interface NodePlanConfig {
  readonly family: IpFamily;
  readonly nodeName: string;
  readonly nodeIP: IpAddress;
  /** `1 << masqueradeBit`, unsigned. */
  readonly masqueradeMark: number;
  readonly masqueradeAll: boolean;
  readonly detector: LocalTrafficDetector;
}
