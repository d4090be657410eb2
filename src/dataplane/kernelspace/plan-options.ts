/** What the planner must know besides service ports and endpoints. */
import type { RemoteSubnet } from "../../kernel/hcn/documents.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";

/** Stays the same while the process runs. */
export interface PlanConfig {
  readonly family: IpFamily;
  readonly nodeName: string;
  readonly nodeIP: IpAddress;
  /** `winkernel.enableDSR`: cluster IPs answer clients directly. */
  readonly enableDsr: boolean;
  /** HNS has direct server return; without it there is no Local policy for the outside, and no preserve-destination. */
  readonly hasDsr: boolean;
  /** HNS keeps clients at an endpoint. */
  readonly hasAffinity: boolean;
  /** `winkernel.sourceVip`. */
  readonly sourceVip: IpAddress | undefined;
  /** `winkernel.forwardHealthCheckVip`: the port of the proxy's own health server, 0 for none. Undefined: not forwarded. */
  readonly healthPort: number | undefined;
}

/** As the last look at the host found it. */
export interface PlanFacts {
  readonly zone: string | undefined;
  readonly isOverlay: boolean;
  readonly remoteSubnets: readonly RemoteSubnet[];
}
