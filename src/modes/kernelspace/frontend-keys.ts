/** The frontend of a load balancer as a key: HNS rejects a second one there. */

import { frontendKey } from "../../model/frontend.ts";
import { familyOf, type IpAddress, type IpFamily } from "../../net/ip.ts";
import { protocolOfNumber } from "../../net/protocol.ts";
import { type HcnLoadBalancer, LB_IPV6, type LoadBalancerBehaviour } from "./hcn/documents.ts";

/** The frontends of a load balancer in a family: `tcp 10.96.0.1:80`, or `tcp *:30080` at the node's own address. Protocols that no Service can have are left out. */
export function keysOf({ frontendVips, mappings, flags }: HcnLoadBalancer, family: IpFamily): string[] {
  const atNode = frontendVips.length === 0 && ((flags & LB_IPV6) !== 0) === (family === "IPv6");
  const places: readonly (IpAddress | undefined)[] = atNode
    ? [undefined]
    : frontendVips.filter((vip) => familyOf(vip) === family);
  return places.flatMap((place) =>
    mappings.flatMap(({ protocol: number, externalPort }) => {
      const protocol = protocolOfNumber(number);
      return protocol === undefined ? [] : [frontendKey(protocol, { address: place, port: externalPort })];
    }),
  );
}

/** The family of a load balancer, by its VIP or its flag. */
export function familyOfLoadBalancer({ frontendVips: [vip], flags }: LoadBalancerBehaviour): IpFamily {
  if (vip !== undefined) return familyOf(vip);
  return (flags & LB_IPV6) === 0 ? "IPv4" : "IPv6";
}
