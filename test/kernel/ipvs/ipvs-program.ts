/**
 * Does something to the IPVS of the network namespace that it is started in, as another program would:
 * `flush`, or `add ADDRESS PORT SCHEDULER` (a TCP virtual server).
 */
import { openNetlinkIpvs } from "../../../src/kernel/ipvs/netlink-ipvs.ts";
import type { IpAddress } from "../../../src/net/ip.ts";

const [command, address = "", port = "", scheduler = ""] = process.argv.slice(2);
await using ipvs = await openNetlinkIpvs({ loadModule: async () => {} });
if (command === "flush") await ipvs.flush();
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
