/** What the bits of a load balancer's document mean for its clients. Reference windows.md §2.6. Pure. */
import {
  DISTRIBUTE_BY_SOURCE,
  LB_DSR,
  LB_IPV6,
  type LoadBalancerBehaviour,
  MAP_EXTERNAL_IP,
  MAP_LOCAL_ROUTED_VIP,
  MAP_PRESERVE_DIP,
  MAP_USE_MUX,
  type PortMapping,
} from "../../kernel/hcn/documents.ts";

const LOAD_BALANCER_BITS: readonly (readonly [bit: number, meaning: string])[] = [
  [LB_DSR, "direct server return, so the endpoint sees the client and answers it directly"],
  [LB_IPV6, "IPv6"],
];

const MAPPING_BITS: readonly (readonly [bit: number, meaning: string])[] = [
  [1, "internal"],
  [MAP_LOCAL_ROUTED_VIP, "at the node's own address"],
  [MAP_USE_MUX, "through the multiplexer of the host"],
  [MAP_PRESERVE_DIP, "the endpoint gets packets with the destination that the client asked for"],
  [MAP_EXTERNAL_IP, "for clients outside of the cluster"],
];

/** A sentence for each number of a document that says something. */
export function behaviourWords(
  { flags, sourceVip }: LoadBalancerBehaviour,
  { distribution, flags: mappingFlags }: PortMapping,
): readonly string[] {
  return [
    ...bitWords("Flags", flags, LOAD_BALANCER_BITS),
    ...bitWords("flags of the port", mappingFlags, MAPPING_BITS),
    ...(distribution === DISTRIBUTE_BY_SOURCE
      ? ["DistributionType 2: all connections of a client have one endpoint"]
      : []),
    ...(sourceVip === undefined || (flags & LB_DSR) !== 0 ? [] : [`SourceVIP: the endpoint sees ${sourceVip}`]),
  ];
}

function bitWords(
  name: string,
  value: number,
  bits: readonly (readonly [bit: number, meaning: string])[],
): readonly string[] {
  if (value === 0) return [];
  const known = bits.filter(([bit]) => (value & bit) !== 0);
  const rest = known.reduce((left, [bit]) => left & ~bit, value);
  const words = known.map(([bit, meaning]) => `${bit} ${meaning}`);
  return [`${name} ${value}: ${[...words, ...(rest === 0 ? [] : [`${rest} not known`])].join("; ")}`];
}
