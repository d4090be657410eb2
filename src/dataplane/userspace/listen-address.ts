/** Where the proxy listens. Reference userspace.md §1.1. Pure. */
import {
  familyOf,
  type IpAddress,
  type IpFamily,
  isLoopback,
  isUnspecified,
  parseIpAddress,
  unspecifiedAddress,
} from "../../net/ip.ts";

/** Where the proxy's own sockets listen. @throws Error for loopback, which only this host could reach. */
export function listenAddressOf(bindAddress: string, family: IpFamily): IpAddress {
  const bound = parseIpAddress(bindAddress);
  if (bound === undefined || familyOf(bound) !== family || isUnspecified(bound)) return unspecifiedAddress(family);
  if (isLoopback(bound)) throw new Error(`cannot proxy on localhost: bindAddress (--bind-address) is ${bound}`);
  return bound;
}
