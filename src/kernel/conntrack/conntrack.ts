import type { IpFamily } from "../../net/ip.ts";
import type { UdpFlow } from "../../net/udp-flow.ts";

/** The kernel's connection tracking table (reference sync.md §13.2). */
export interface ConntrackTable {
  /** Dumps UDP flows of the family; `visit` is called for each. Retries interrupted dumps, then goes on with what it has. */
  forEachUdpFlow(family: IpFamily, visit: (flow: UdpFlow) => void): Promise<void>;
  /** Deletes the flow with exactly this tuple; resolves to false when it is already gone. */
  deleteUdpFlow(family: IpFamily, flow: UdpFlow): Promise<boolean>;
}

/** For nodes without netfilter: there is no flow to find or delete. */
export const NO_CONNTRACK: ConntrackTable = {
  async forEachUdpFlow() {},
  deleteUdpFlow: async () => false,
};
