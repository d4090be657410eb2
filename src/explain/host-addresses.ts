/** Addresses of a machine that are its own. Those that a mode gives a device are what plans come to, and not what they begin with. */
import { MODES } from "../dataplane/registry.ts";
import { openLinks } from "../kernel/route/netlink-links.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import { deviceAddresses, hasAllAddresses } from "../trace/dump/device-addresses.ts";
import type { Dump } from "../trace/dump/recognise.ts";

const MODE_DEVICES: ReadonlySet<string> = new Set(MODES.flatMap(({ ownDevice }) => ownDevice ?? []));

/** This host's. Throws a NetlinkError when the kernel cannot be asked. */
export async function hostAddresses(family: IpFamily): Promise<readonly IpAddress[]> {
  await using links = openLinks();
  const all = await links.addresses(family);
  return [...new Set(all.flatMap(({ address, link }) => (MODE_DEVICES.has(link) ? [] : address)))];
}

/** Those of the machine that the dumps are of; undefined where they do not say all. Pure. */
export function dumpedAddresses(dumps: readonly Dump[]): readonly IpAddress[] | undefined {
  return hasAllAddresses(dumps) ? deviceAddresses(dumps, MODE_DEVICES) : undefined;
}
