/** Whether a load balancer of HNS is what is wanted. Pure. Reference windows.md §3.3, windows-practice.md §9.3. */
import {
  type HcnLoadBalancer,
  LB_DSR,
  LB_IPV6,
  type LoadBalancerSettings,
  type PortMapping,
} from "../../kernel/hcn/documents.ts";
import { equalLists } from "../../model/equal-lists.ts";

const KNOWN_FLAGS = LB_DSR | LB_IPV6;

/**
 * Everything counts, unlike upstream: also the source VIP, flags and distribution. The order of endpoints does not; a source VIP
 * that was left to HNS is HNS's affair.
 */
export function isAsWanted(found: HcnLoadBalancer, wanted: LoadBalancerSettings): boolean {
  const { sourceVip, frontendVip, mapping, flags } = wanted;
  return (
    (found.flags & KNOWN_FLAGS) === flags &&
    (sourceVip === undefined || found.sourceVip === sourceVip) &&
    equalLists(found.frontendVips, frontendVip === undefined ? [] : [frontendVip]) &&
    found.mappings.length === 1 &&
    found.mappings.every((one) => equalMappings(one, mapping)) &&
    equalLists(found.endpoints.toSorted(), wanted.endpoints.toSorted())
  );
}

function equalMappings(a: PortMapping, b: PortMapping): boolean {
  return (
    a.protocol === b.protocol &&
    a.internalPort === b.internalPort &&
    a.externalPort === b.externalPort &&
    a.distribution === b.distribution &&
    a.flags === b.flags
  );
}
