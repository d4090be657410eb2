/** Addresses that are the node's because rules require it: virtual servers' addresses, on a device of their own. */
import { type IpAddress, parseIpAddress } from "../../net/ip.ts";
import type { Dump } from "./recognise.ts";

const GIVEN = /^addr add ([^\s/]+)\S*(?: dev (\S+))?/gm;

/**
 * Addresses assigned to devices. If no dump lists them, the addresses of virtual servers, which only see packets to the node's own
 * addresses.
 *
 * @param without devices to leave out. @default none
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

/** An `addr add` line for loopback: only a list of all devices has one, such as a sysdump's. */
const OF_LOOPBACK = /^addr add \S+ dev lo$/m;

/** Whether the dumps list all addresses of the node. */
export function hasAllAddresses(dumps: readonly Dump[]): boolean {
  return dumps.some((dump) => dump.kind === "addresses" && OF_LOOPBACK.test(dump.text));
}
