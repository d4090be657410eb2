/** What the plans of all service ports depend on, as it is when a sync begins. */
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import { type Cidr, familyOf, type IpFamily, parseCidr } from "../../net/ip.ts";
import type { SyncInput } from "../../sync/backend.ts";
import type { PlanFacts } from "./plan-options.ts";

/** Before the first full sync. */
export const NO_FACTS: PlanFacts = { zone: undefined, nodePortIPs: { kind: "ips", ips: [] }, serviceCIDRs: [] };

/** @param readNodePortIPs resolves to undefined when the host's addresses cannot be read: then there are none. */
export async function readFacts(
  { zone, serviceCIDRs }: Pick<SyncInput, "zone" | "serviceCIDRs">,
  family: IpFamily,
  readNodePortIPs: () => Promise<NodePortIPs | undefined>,
): Promise<PlanFacts> {
  const nodePortIPs = (await readNodePortIPs()) ?? NO_FACTS.nodePortIPs;
  const cidrs = serviceCIDRs.map((text) => parseCidr(text)).filter((cidr) => cidr !== undefined) as Cidr[]; // filtered above
  return { zone, nodePortIPs, serviceCIDRs: cidrs.filter((cidr) => familyOf(cidr) === family).sort() };
}
