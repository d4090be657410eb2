/** Changes a network namespace's IPVS as another program would; a thread inside it (testkit/net/helper-thread.ts). */
import { virtualServerText } from "../../../src/modes/ipvs/kernel/ipvs.ts";
import { type NetlinkIpvs, openNetlinkIpvs } from "../../../src/modes/ipvs/kernel/netlink-ipvs.ts";
import { joinHostPort, parseIpAddress } from "../../../src/net/ip.ts";
import { serveRequests } from "../../../testkit/net/helper-side.ts";

export type IpvsRequest =
  | { readonly id: number; readonly kind: "flush" }
  | { readonly id: number; readonly kind: "list" }
  /** A TCP virtual server. */
  | { readonly id: number; readonly kind: "add"; readonly address: string; readonly port: number };

export interface IpvsReply {
  readonly id: number;
  /** A line for each virtual server with its real servers; empty unless requested. */
  readonly text: string;
}

async function list(ipvs: NetlinkIpvs): Promise<string> {
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

async function carryOut(request: IpvsRequest): Promise<string> {
  await using ipvs = await openNetlinkIpvs({ loadModule: async () => {} });
  if (request.kind === "list") return await list(ipvs);
  if (request.kind === "flush") {
    await ipvs.flush();
    return "";
  }
  const { port } = request;
  const address = parseIpAddress(request.address);
  if (address === undefined) throw new TypeError(`not an IP address: ${request.address}`);
  const virtualServer = { address, protocol: "TCP", port, scheduler: "wlc", flags: 0, timeoutSeconds: 0 } as const;
  const [failure] = await ipvs.apply([{ kind: "add-virtual-server", virtualServer }]);
  if (failure !== undefined) throw new Error(failure.message);
  return "";
}

serveRequests(
  () =>
    async (request: IpvsRequest): Promise<IpvsReply> => ({ id: request.id, text: await carryOut(request) }),
);
