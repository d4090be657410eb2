/** Who may ask at the load-balancer addresses of a service port: reference nftables.md §3.4. */
import type { ServicePort } from "../../model/service-port.ts";
import { type Cidr, cidrContains, hostCidr } from "../../net/ip.ts";
import type { PlanConfig } from "./plan-options.ts";

/** The source ranges of a service port that has some, and what they imply. Pure. */
export function allowedSources(port: ServicePort, config: PlanConfig): readonly Cidr[] {
  const { loadBalancerSourceRanges: ranges, loadBalancerVIPs } = port;
  // With an admitted node, load balancers that hairpin show up with the VIP as their source.
  const admitsNode = ranges.some((range) => cidrContains(range, config.nodeIP));
  return admitsNode ? [...ranges, ...loadBalancerVIPs.map(hostCidr)] : ranges;
}
