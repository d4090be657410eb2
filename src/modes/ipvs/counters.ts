/** The counters of IPVS: total connections of each virtual server, and current ones of each real server. */

import { addTo, type Count, type CountedPort, type ModeCounters } from "../../contract/traffic.ts";
import type { Links } from "../../kernel/route/links.ts";
import { openLinks } from "../../kernel/route/netlink-links.ts";
import type { IpAddress } from "../../net/ip.ts";
import type { Ipvs, VirtualServerKey } from "./kernel/ipvs.ts";
import { openNetlinkIpvs } from "./kernel/netlink-ipvs.ts";
import { DUMMY_DEVICE } from "./names.ts";

export const ipvsCounters: ModeCounters = {
  isEndpointTracked: true,
  isMarked: false,
  async fill(ports) {
    await using ipvs = await openNetlinkIpvs({ loadModule: async () => {} });
    await using links = openLinks();
    return await fillFromIpvs(ipvs, ports, links);
  },
};

/** The same for any {@link Ipvs}. @param links tells which addresses belong to Services and so have no node ports. @default none */
export async function fillFromIpvs(
  ipvs: Pick<Ipvs, "virtualServers" | "connections" | "realServers">,
  ports: readonly CountedPort[],
  links?: Pick<Links, "addresses">,
): Promise<readonly string[]> {
  const families = new Set(ports.map(({ family }) => family));
  const byPort = new Map<string, VirtualServerKey[]>();
  const bound = new Set<IpAddress>();
  for (const family of families) {
    for (const { link, address } of (await links?.addresses(family)) ?? []) {
      if (link === DUMMY_DEVICE) bound.add(address);
    }
    for (const server of await ipvs.virtualServers(family)) {
      const key = `${family} ${server.protocol} ${server.port}`;
      byPort.set(key, [...(byPort.get(key) ?? []), server]);
    }
  }
  for (const { name, family, frontends, endpoints } of ports) {
    const counts = new Map<string, Count>(endpoints.map(({ ip, port, count }) => [`${ip} ${port}`, count]));
    for (const { address, port, count } of frontends) {
      const servers = byPort.get(`${family} ${name.protocol} ${port}`) ?? [];
      for (const server of servers) {
        // A node port has a virtual server for each address of the node.
        if (address !== undefined && server.address !== address) continue;
        if (address === undefined && (bound.has(server.address) || isOther(server, frontends))) continue;
        const counted = await ipvs.connections(server);
        if (counted !== undefined) addTo(count, "counted", counted);
        for (const real of (await ipvs.realServers(server)) ?? []) {
          const connections = real.activeConnections + real.inactiveConnections;
          addTo(count, "open", connections);
          const own = counts.get(`${real.address} ${real.port}`);
          if (own === undefined) continue;
          addTo(own, "open", connections);
          if (real.connections !== undefined) addTo(own, "counted", real.connections);
        }
      }
    }
  }
  return ["IPVS counts connections since the address, or its endpoint, was added."];
}

/** Whether the server is another frontend of the service port, whose port happens to equal the node port. */
function isOther({ address, port }: VirtualServerKey, frontends: CountedPort["frontends"]): boolean {
  return frontends.some((one) => one.address === address && one.port === port);
}
