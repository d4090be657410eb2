/** The state of the ipvs mode in a kernel, real or in memory, in comparable form. */

import type { Iptables } from "../../../kernel/iptables/iptables.ts";
import type { Links } from "../../../kernel/route/links.ts";
import type { IpFamily } from "../../../net/ip.ts";
import { type Ipset, ipsetEntryText } from "../ipset/ipset.ts";
import { type Ipvs, virtualServerText } from "../kernel/ipvs.ts";
import { DUMMY_DEVICE } from "../names.ts";
import { realServerText } from "../virtual-server-step.ts";

/** The kernel interfaces that the mode uses. */
export interface IpvsKernel {
  readonly ipvs: Ipvs;
  readonly ipset: Ipset;
  readonly links: Links;
  readonly iptables: Iptables;
}

/** One family. */
export interface NodeState {
  /** `10.0.0.1:80/TCP rr flags 0 timeout 0` → `10.1.0.1:80 weight 1`, sorted. */
  readonly virtualServers: Readonly<Record<string, readonly string[]>>;
  /** `NAME type family` → members, sorted. */
  readonly sets: Readonly<Record<string, readonly string[]>>;
  /** Addresses on kube-ipvs0, sorted; undefined without the device. */
  readonly addresses: readonly string[] | undefined;
  /** Destinations of local routes through kube-ipvs0, sorted. */
  readonly routes: readonly string[];
  /** Text of iptables-save. */
  readonly nat: string;
  readonly filter: string;
}

/** Reads everything from the kernel. */
export async function readNodeState(kernel: IpvsKernel, family: IpFamily): Promise<NodeState> {
  const { ipvs, ipset, links, iptables } = kernel;
  const virtualServers: Record<string, readonly string[]> = {};
  for (const server of await ipvs.virtualServers(family)) {
    const { scheduler, flags, timeoutSeconds } = server;
    const title = `${virtualServerText(server)} ${scheduler} flags ${flags} timeout ${timeoutSeconds}`;
    const realServers = (await ipvs.realServers(server)) ?? [];
    virtualServers[title] = realServers.map((real) => `${realServerText(real)} weight ${real.weight}`).sort();
  }
  const sets: Record<string, readonly string[]> = {};
  for (const set of await ipset.sets()) {
    const entries = (await ipset.members(set.name)) ?? [];
    sets[`${set.name} ${set.type} ${set.family ?? "-"}`] = entries.map(ipsetEntryText).sort();
  }
  const hasDevice = (await links.link(DUMMY_DEVICE)) !== undefined;
  const bound = (await links.addresses(family)).filter(({ link }) => link === DUMMY_DEVICE);
  const routes = (await links.localRoutes(family)).filter(({ link }) => link === DUMMY_DEVICE);
  return {
    virtualServers: sorted(virtualServers),
    sets: sorted(sets),
    addresses: hasDevice ? bound.map(({ address }) => address as string).sort() : undefined,
    routes: routes.map(({ address }) => address as string).sort(),
    nat: await iptables.save("nat"),
    filter: await iptables.save("filter"),
  };
}

function sorted<T>(record: Readonly<Record<string, T>>): Record<string, T> {
  return Object.fromEntries(Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1)));
}
