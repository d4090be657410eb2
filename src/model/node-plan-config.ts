/** The configuration and node settings that the planners of every mode use: one family, fixed for the process. */
import type { IpAddress, IpFamily } from "../net/ip.ts";
import type { LocalTrafficDetector } from "./local-traffic-detector.ts";
import type { NodePortAddresses } from "./node-port-addresses.ts";

/** One family of a node, from the daemon or from a folder of manifests. */
export interface PlannedNode {
  readonly family: IpFamily;
  readonly name: string;
  /** This family's effective node IP; loopback if unknown. */
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
  /** Of the hashes that choose endpoints, unsigned. */
  readonly hashSeed: number;
}
