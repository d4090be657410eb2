/** The other end of a socket, as the rest of the program knows addresses. */
import { type IpAddress, parseIpAddress } from "../net/ip.ts";
import type { Destination } from "./relay.ts";

/** @param address as Node spells it: canonical, but with the zone of a link-local one. */
export function clientAt(address: string, port: number): Destination {
  const zoneAt = address.indexOf("%");
  const bare = zoneAt < 0 ? address : address.slice(0, zoneAt);
  // The kernel's text of an address of one family is canonical already, but for what parsing canonicalises.
  return { address: parseIpAddress(bare) ?? (bare as IpAddress), port };
}
