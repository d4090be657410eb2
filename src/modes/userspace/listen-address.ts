/** Where the proxy listens. Reference userspace.md §1.1. */
import {
  familyOf,
  type IpAddress,
  type IpFamily,
  isLinkLocalV6,
  isLoopback,
  isUnspecified,
  parseIpAddress,
  unspecifiedAddress,
} from "../../net/ip.ts";

/** Where the sockets listen, and the address of the host that rules lead to. */
export interface ProxyAddresses {
  /** Unspecified only while the host has no usable address. */
  readonly listenAddress: IpAddress;
  readonly hostAddress: IpAddress;
}

/**
 * Where the proxy's own sockets listen. Without a `bindAddress` that is one address of the host, not all of them: the
 * rules translate to it for every incoming interface, and a UDP socket answers from the address that it is bound to.
 *
 * @param hostAddress undefined while the host has only loopback and link-local addresses.
 * @throws Error for loopback, which only this host could reach.
 */
export function listenAddressOf(bindAddress: string, family: IpFamily, hostAddress: IpAddress | undefined): IpAddress {
  const bound = parseIpAddress(bindAddress);
  if (bound === undefined || familyOf(bound) !== family || isUnspecified(bound))
    return hostAddress ?? unspecifiedAddress(family);
  if (isLoopback(bound)) throw new Error(`cannot proxy on localhost: bindAddress (--bind-address) is ${bound}`);
  return bound;
}

/** The address of this host for its Services: the previous one if still present, else the node's, else any that pods can reach. */
export function hostAddressAmong(
  addresses: ReadonlySet<IpAddress>,
  nodeIP: IpAddress,
  before?: IpAddress,
): IpAddress | undefined {
  const isUsable = (ip: IpAddress): boolean => !isLoopback(ip) && !isLinkLocalV6(ip);
  for (const preferred of [before, nodeIP])
    if (preferred !== undefined && isUsable(preferred) && addresses.has(preferred)) return preferred;
  return [...addresses].find(isUsable);
}
