/** Addresses that are the node's because rules need them to be: those of virtual servers, on a device of their own. Pure. */
import { type IpAddress, parseIpAddress } from "../../net/ip.ts";
import type { Dump } from "./recognise.ts";

const GIVEN = /^addr add ([^\s/]+)\S*(?: dev (\S+))?/gm;

/**
 * Those that are given to a device. Where no dump says which these are, those of virtual servers: a packet that is not for the node
 * never meets one.
 *
 * @param without devices that are left out. @default none
 */
export function deviceAddresses(dumps: readonly Dump[], without: ReadonlySet<string> = new Set()): IpAddress[] {
  const found = new Set<IpAddress>();
  const isGiven = dumps.some(({ kind }) => kind === "addresses");
  for (const dump of dumps) {
    if (dump.kind === "chains" && !isGiven) for (const address of dump.addresses ?? []) found.add(address);
    if (dump.kind !== "addresses") continue;
    for (const [, text = "", device = ""] of dump.text.matchAll(GIVEN)) {
      const address = parseIpAddress(text);
      if (address !== undefined && !without.has(device)) found.add(address);
    }
  }
  return [...found];
}

/** A line of `addr add` for loopback: only a list of all devices has one, as a sysdump's. */
const OF_LOOPBACK = /^addr add \S+ dev lo$/m;

/** Whether the addresses in the dumps are all that the node has. Pure. */
export function hasAllAddresses(dumps: readonly Dump[]): boolean {
  return dumps.some((dump) => dump.kind === "addresses" && OF_LOOPBACK.test(dump.text));
}
