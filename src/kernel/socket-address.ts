/** Socket addresses as system calls expect them (struct sockaddr_in and sockaddr_in6, linux/in.h and linux/in6.h). */
import { familyOf, type IpAddress, ipBytes } from "../net/ip.ts";
import { AF_INET, AF_INET6, HOST_IS_LITTLE_ENDIAN } from "./netlink/constants.ts";

export const ADDRESS_FAMILIES = { IPv4: AF_INET, IPv6: AF_INET6 } as const;

/**
 * ```
 * u16 family · u16be port · 4 bytes IPv4 address · 8 bytes 0
 * u16 family · u16be port · u32 flow · 16 bytes IPv6 address · u32 scope
 * ```
 */
export function socketAddress({ address, port }: { readonly address: IpAddress; readonly port: number }): Buffer {
  const family = familyOf(address);
  const isIpv6 = family === "IPv6";
  const bytes = Buffer.alloc(isIpv6 ? 28 : 16);
  if (HOST_IS_LITTLE_ENDIAN) bytes.writeUInt16LE(ADDRESS_FAMILIES[family]);
  else bytes.writeUInt16BE(ADDRESS_FAMILIES[family]);
  bytes.writeUInt16BE(port, 2);
  bytes.set(ipBytes(address), isIpv6 ? 8 : 4);
  return bytes;
}
