/** Where a load balancer answers, in one text: HNS refuses a second one there. */
import { type HcnLoadBalancer, LB_IPV6 } from "../../kernel/hcn/documents.ts";
import { frontendKey } from "../../model/frontend.ts";
import { familyOf, type IpAddress, type IpFamily } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS, type Protocol, protocolOfNumber } from "../../net/protocol.ts";

/** `tcp 10.96.0.1:80`, or `tcp *:30080` at the node's own address; of one family. Pure. */
export function loadBalancerKey(protocol: Protocol, address: IpAddress | undefined, port: number): string {
  return frontendKey(protocol, { address, port });
}

/** IANA's number of a protocol. Pure. */
export const protocolNumber = (protocol: Protocol): number => PROTOCOL_NUMBERS[protocol];

/** Every frontend that a load balancer has in the family; those of protocols that no Service has are left out. Pure. */
export function keysOf({ frontendVips, mappings, flags }: HcnLoadBalancer, family: IpFamily): string[] {
  const atNode = frontendVips.length === 0 && isFamily((flags & LB_IPV6) !== 0, family);
  const places: readonly (IpAddress | undefined)[] = atNode
    ? [undefined]
    : frontendVips.filter((vip) => familyOf(vip) === family);
  return places.flatMap((place) =>
    mappings.flatMap(({ protocol: number, externalPort }) => {
      const protocol = protocolOfNumber(number);
      return protocol === undefined ? [] : [loadBalancerKey(protocol, place, externalPort)];
    }),
  );
}

/** The family of a load balancer, by its VIP or by its flag. Pure. */
export function familyOfLoadBalancer({ frontendVips: [vip], flags }: HcnLoadBalancer): IpFamily {
  if (vip !== undefined) return familyOf(vip);
  return (flags & LB_IPV6) === 0 ? "IPv4" : "IPv6";
}

function isFamily(isIpv6: boolean, family: IpFamily): boolean {
  return isIpv6 === (family === "IPv6");
}
