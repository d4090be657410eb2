/** What packets meet at devices beside netfilter: XDP programs, and filters of traffic control (linux/if_link.h, pkt_sched.h). */
import { attributes, u32host, zstring } from "../netlink/attributes.ts";
import { HOST_IS_LITTLE_ENDIAN, NETLINK_ROUTE, NLM_F_DUMP } from "../netlink/constants.ts";
import { collectDump } from "../netlink/dump-retry.ts";
import { NetlinkError } from "../netlink/errors.ts";
import type { Reply } from "../netlink/frames.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import { IFINFOMSG_BYTES, readLink, writeLinkDump } from "./rtnetlink.ts";

const RTM_GETQDISC = 38;
const RTM_GETTFILTER = 46;
/** u32 family · i32 interface index · u32 handle · u32 parent · u32 info */
const TCMSG_BYTES = 20;
/** TC_H_MAKE(TC_H_CLSACT, …): where filters hang. */
const PARENTS = { ingress: 0xffff_fff2, egress: 0xffff_fff3 } as const;
/** Directions by the kind of the queue that has them. */
const FILTERED: ReadonlyMap<string | undefined, readonly (keyof typeof PARENTS)[]> = new Map(
  Object.entries({ clsact: ["ingress", "egress"] as const, ingress: ["ingress"] as const }),
);
/** This kernel has no traffic control, or the device is gone. */
const NOT_HERE = new Set(["EOPNOTSUPP", "EINVAL", "ENODEV"]);

const traffic = attributes({ kind: [1, zstring] });
/** The first is the only one; the others are named by how they are attached. */
const xdp = attributes({ id: [4, u32host], native: [5, u32host], generic: [6, u32host], offloaded: [7, u32host] });
const link = attributes({ xdp: [43, xdp] });

/** Names of all devices by index, and in words what is at the first of them. @param most so many are named. */
export async function filtersAtDevices(most: number) {
  await using socket = NetlinkSocket.open(NETLINK_ROUTE);
  return await filtersBy(socket, most);
}

/** {@link filtersAtDevices} by a given socket. */
export async function filtersBy(socket: Pick<NetlinkSocket, "dump">, most: number) {
  const request = new MessageBuffer(64);
  writeLinkDump(request);
  const links = await collectDump(socket, request, (reply) => {
    const found = readLink(reply);
    return found && { ...found, ...link.read(reply.input, reply.start + IFINFOMSG_BYTES, reply.end) };
  });
  const names = new Map(links.map(({ index, name }) => [index, name]));
  const found = links.flatMap(({ name, xdp = {} }) =>
    [...new Set(Object.values(xdp))].flatMap((id) => (id ? `XDP program ${id} at ${name}` : [])),
  );
  const dump = async (type: number, index: number, parent: number): Promise<readonly Traffic[]> => {
    const messages = new MessageBuffer(64);
    messages.put(type, NLM_F_DUMP, (out) => {
      for (const value of [0, index, 0, parent, 0]) out.u32(value, HOST_IS_LITTLE_ENDIAN);
    });
    return await collectDump(socket, messages, readTraffic).catch((error: unknown) => {
      if (error instanceof NetlinkError && NOT_HERE.has(error.code)) return [];
      throw error;
    });
  };
  for (const { index, kind } of await dump(RTM_GETQDISC, 0, 0)) {
    for (const direction of FILTERED.get(kind) ?? []) {
      if (found.length >= most) break;
      const [filter] = await dump(RTM_GETTFILTER, index, PARENTS[direction]);
      if (filter !== undefined) found.push(`tc filter ${filter.kind} at ${names.get(index)} ${direction}`);
    }
  }
  return { names, found: found.slice(0, most) };
}

type Traffic = NonNullable<ReturnType<typeof readTraffic>>;

function readTraffic({ input, start, end }: Reply) {
  if (end - start < TCMSG_BYTES) return undefined;
  const { kind } = traffic.read(input, start + TCMSG_BYTES, end);
  return { index: input.view.getInt32(start + 4, HOST_IS_LITTLE_ENDIAN), kind };
}
