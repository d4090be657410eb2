/**
 * Does something to the IPVS of the network namespace that it is started in, as another program would: `flush`,
 * `add ADDRESS PORT SCHEDULER` (a TCP virtual server), or `list` (a line for each virtual server with its real servers).
 */
import { virtualServerText } from "../../../src/kernel/ipvs/ipvs.ts";
import { openNetlinkIpvs } from "../../../src/kernel/ipvs/netlink-ipvs.ts";
import { type IpAddress, joinHostPort } from "../../../src/net/ip.ts";

const [command, address = "", port = "", scheduler = ""] = process.argv.slice(2);
await using ipvs = await openNetlinkIpvs({ loadModule: async () => {} });

async function list(): Promise<string> {
  const lines: string[] = [];
  for (const family of ["IPv4", "IPv6"] as const) {
    for (const server of await ipvs.virtualServers(family)) {
      const reals = (await ipvs.realServers(server)) ?? [];
      const texts = reals.map((real) => `${joinHostPort(real.address, real.port)} ${real.weight}`).sort();
      const { scheduler, flags, timeoutSeconds } = server;
      lines.push([virtualServerText(server), scheduler, flags, timeoutSeconds, ...texts].join(" "));
    }
  }
  return lines.sort().join("\n");
}

if (command === "flush") await ipvs.flush();
else if (command === "list") process.stdout.write(`${await list()}\n`);
else {
  const virtualServer = {
    address: address as IpAddress, // the tests write canonical ones
    protocol: "TCP",
    port: Number(port),
    scheduler,
    flags: 0,
    timeoutSeconds: 0,
  } as const;
  const [failure] = await ipvs.apply([{ kind: "add-virtual-server", virtualServer }]);
  if (failure !== undefined) throw new Error(failure.message);
}
