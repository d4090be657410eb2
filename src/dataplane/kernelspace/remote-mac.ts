/** The MAC address of an endpoint that stands for an address elsewhere: reference windows.md §2.4. */
import { familyOf, type IpAddress, ipBytes } from "../../net/ip.ts";

/** As it is sent: `02-11-c0-a8-02-03`. Of IPv6 addresses only the last 32 bits count, in reverse. Pure. */
export function remoteMac(address: IpAddress): string {
  const bytes = ipBytes(address);
  const counted = familyOf(address) === "IPv4" ? bytes : bytes.slice(-4).reverse();
  return ["02", "11", ...Array.from(counted, (byte) => byte.toString(16).padStart(2, "0"))].join("-");
}
