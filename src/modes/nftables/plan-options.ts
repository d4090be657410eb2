/** The nftables planners' input besides Services: configuration and facts of the node, one IP family. */
import type { Counted } from "../../contract/config/config.ts";
import type { Release } from "../../contract/config/release.ts";
import type { NodePlanConfig } from "../../model/node-plan-config.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import { type Cidr, familyOf, type IpFamily, parseCidr } from "../../net/ip.ts";
import type { Protocol } from "../../net/protocol.ts";

/** Constant for the life of the process. */
export interface PlanConfig extends NodePlanConfig {
  readonly release: Release;
  /** Protocols whose node ports are rejected on loopback addresses. @default none: nothing answers there */
  readonly rejectedAtLocalhost?: readonly Protocol[];
  /** What is counted in the flat layout. @default nothing */
  readonly counted?: Counted;
  /** Services that ask for a hash are served at random. @default the kernel can hash */
  readonly lacksHash?: boolean;
}

/** May differ from sync to sync. */
export interface PlanFacts {
  readonly zone: string | undefined;
  readonly nodePortIPs: NodePortIPs;
  /** Those of this family, sorted. */
  readonly serviceCIDRs: readonly Cidr[];
}

/** The facts before the first full sync. */
export const NO_FACTS: PlanFacts = { zone: undefined, nodePortIPs: { kind: "ips", ips: [] }, serviceCIDRs: [] };

/** The facts of one family. @param nodePortIPs undefined if the host's addresses cannot be read; counts as none. */
export function planFacts(
  { zone, serviceCIDRs }: { readonly zone: string | undefined; readonly serviceCIDRs: readonly string[] },
  family: IpFamily,
  nodePortIPs: NodePortIPs = NO_FACTS.nodePortIPs,
): PlanFacts {
  const cidrs = serviceCIDRs.map((text) => parseCidr(text)).filter((cidr) => cidr !== undefined);
  return { zone, nodePortIPs, serviceCIDRs: [...new Set(cidrs)].filter((cidr) => familyOf(cidr) === family).sort() };
}
