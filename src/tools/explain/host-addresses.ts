/** A machine's own addresses. Addresses that a mode puts on its device are the result of a plan, not its input. */

import { openLinks } from "../../kernel/route/netlink-links.ts";
import { MODES } from "../../modes/registry.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { deviceAddresses, hasAllAddresses } from "../../trace/dump/device-addresses.ts";
import type { Dump } from "../../trace/dump/recognise.ts";

const MODE_DEVICES: ReadonlySet<string> = new Set(MODES.flatMap(({ ownDevice }) => ownDevice ?? []));

/** This host's addresses. @throws NetlinkError if the kernel cannot be asked. */
export async function hostAddresses(family: IpFamily): Promise<readonly IpAddress[]> {
  await using links = openLinks();
  const all = await links.addresses(family);
  return [...new Set(all.flatMap(({ address, link }) => (MODE_DEVICES.has(link) ? [] : address)))];
}

/** The addresses of the dumped machine; undefined if the dumps do not list them all. */
export function dumpedAddresses(dumps: readonly Dump[]): readonly IpAddress[] | undefined {
  return hasAllAddresses(dumps) ? deviceAddresses(dumps, MODE_DEVICES) : undefined;
}
