/** Addresses that are the node's because rules need them to be: those of virtual servers, on a device of their own. Pure. */
import { type IpAddress, parseIpAddress } from "../../net/ip.ts";
import type { Dump } from "./recognise.ts";

const GIVEN = /^addr add ([^\s/]+)/gm;
const VIRTUAL_SERVER = /^-A (?:-[tu]|--sctp-service) (?:\[([^\]]+)\]|([^\s:]+)):/gm;

/**
 * Those that are given to a device. Where no dump says which these are, those of virtual servers: a packet that is not for the node
 * never meets one.
 */
export function deviceAddresses(dumps: readonly Dump[]): IpAddress[] {
  const found = new Set<IpAddress>();
  const isGiven = dumps.some(({ kind }) => kind === "addresses");
  for (const dump of dumps) {
    if (dump.kind !== (isGiven ? "addresses" : "ipvsadm")) continue;
    const pattern = isGiven ? GIVEN : VIRTUAL_SERVER;
    for (const [, first, second] of dump.text.matchAll(pattern)) {
      const address = parseIpAddress(first ?? second ?? "");
      if (address !== undefined) found.add(address);
    }
  }
  return [...found];
}

/** A line of `addr add` for loopback: only a list of all devices has one, as a sysdump's. */
const OF_LOOPBACK = /^addr add \S+ dev lo$/m;

/** Whether the addresses in the dumps are all that the node has. Pure. */
export function hasAllAddresses(dumps: readonly Dump[]): boolean {
  return dumps.some((dump) => dump.kind === "addresses" && "text" in dump && OF_LOOPBACK.test(dump.text));
}
