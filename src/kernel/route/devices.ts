/**
 * Devices as packets meet them: how they are joined, and what is there beside netfilter, XDP programs and filters of traffic control
 * (linux/if_link.h, pkt_sched.h).
 */
import { attributes, u8, u32host, zstring } from "../netlink/attributes.ts";
import { HOST_IS_LITTLE_ENDIAN, NETLINK_ROUTE, NLM_F_DUMP } from "../netlink/constants.ts";
import { answersTo } from "../netlink/dump-retry.ts";
import { NetlinkError } from "../netlink/errors.ts";
import type { Reply } from "../netlink/frames.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";
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
/** Of a port of a bridge (IFLA_BRPORT_MODE). */
const port = attributes({ hairpin: [4, u8] });
const link = attributes({
  master: [10, u32host],
  info: [18, attributes({ portOf: [4, zstring], port: [5, port] })],
  xdp: [43, xdp],
});
const ARPHRD_LOOPBACK = 772;

/** All devices of this network namespace. */
export async function devicesHere() {
  await using socket = NetlinkSocket.open(NETLINK_ROUTE);
  return await devicesBy(socket);
}

export type Device = Awaited<ReturnType<typeof devicesHere>>[number];
type Kernel = Pick<NetlinkSocket, "dump">;

/** {@link devicesHere} by a given socket. */
export async function devicesBy(socket: Kernel) {
  const links = await answersTo(socket, writeLinkDump, (reply) => {
    const found = readLink(reply);
    const isLoopback = reply.input.view.getUint16(reply.start + 2, HOST_IS_LITTLE_ENDIAN) === ARPHRD_LOOPBACK;
    return found && { ...found, isLoopback, ...link.read(reply.input, reply.start + IFINFOMSG_BYTES, reply.end) };
  });
  const names = new Map(links.map(({ index, name }) => [index, name]));
  return links.map(({ name, index, kind, isLoopback, master = 0, info, xdp: programs = {} }) => ({
    ...{ name, index, kind, isLoopback },
    /** The device that it is a port of, and that device's kind. */
    master: names.get(master),
    portOf: info?.portOf,
    /** Whether it is a port of a bridge that sends nothing back to where it came from. */
    lacksHairpin: info?.portOf === "bridge" && info.port?.hairpin === 0,
    /** Ids of XDP programs. */
    xdp: [...new Set(Object.values(programs))].filter((id) => id !== undefined && id !== 0),
  }));
}

/** Something that packets meet beside all rules. */
export interface AtDevice {
  /** In words. */
  readonly what: string;
  /** @default none of one device alone */
  readonly device?: string | undefined;
}

/** What is at these devices. */
export async function filtersAt(devices: readonly Device[]): Promise<readonly AtDevice[]> {
  await using socket = NetlinkSocket.open(NETLINK_ROUTE);
  return await filtersBy(socket, devices);
}

/** {@link filtersAt} by a given socket. */
export async function filtersBy(socket: Kernel, devices: readonly Device[]): Promise<readonly AtDevice[]> {
  const names = new Map(devices.map(({ index, name }) => [index, name]));
  const found: AtDevice[] = devices.flatMap(({ name, kind, xdp: ids }) => [
    ...ids.map((id) => ({ what: `XDP program ${id} at ${name}`, device: name })),
    ...(kind === "netkit" ? [{ what: `what netkit runs at ${name}`, device: name }] : []),
  ]);
  for (const { index, kind } of await dumpTraffic(socket, RTM_GETQDISC, 0, 0)) {
    for (const direction of FILTERED.get(kind) ?? []) {
      const [filter] = await dumpTraffic(socket, RTM_GETTFILTER, index, PARENTS[direction]);
      const device = names.get(index);
      if (filter !== undefined) found.push({ what: `tc filter ${filter.kind} at ${device} ${direction}`, device });
    }
  }
  return found;
}

/** Devices that send by no other one. The others, such as VLANs and tunnels, may send by any. */
const ON_THEIR_OWN: ReadonlySet<string | undefined> = new Set([
  ...[undefined, "veth", "bridge", "dummy", "tun", "netkit", "ifb"],
]);

/** By which devices, as rules name them, packets come in that meet what is at one, and by which they go out. */
export interface WaysPast {
  readonly comesIn: readonly string[];
  readonly goesOut: readonly string[];
}

/** @param name of the device where something is */
export function waysPast(devices: readonly Device[], name: string): WaysPast {
  const { master, portOf } = devices.find((one) => one.name === name) ?? {};
  const riding = devices.filter(({ kind }) => name !== "lo" && !ON_THEIR_OWN.has(kind)).map((one) => one.name);
  const isPort = portOf === "bridge";
  // A bridge sends to any of its ports, and the port by which a packet comes in is known.
  const comesIn = [name, ...riding, ...(master === undefined || isPort ? [] : [master])];
  return { comesIn, goesOut: [...comesIn, ...(master === undefined ? [] : [master])] };
}

async function dumpTraffic(socket: Kernel, type: number, device: number, parent: number) {
  const write = (request: MessageBuffer): void =>
    request.put(type, NLM_F_DUMP, (out) => {
      for (const value of [0, device, 0, parent, 0]) out.u32(value, HOST_IS_LITTLE_ENDIAN);
    });
  return await answersTo(socket, write, readTraffic).catch((error: unknown) => {
    if (error instanceof NetlinkError && NOT_HERE.has(error.code)) return [];
    throw error;
  });
}

function readTraffic({ input, start, end }: Reply) {
  if (end - start < TCMSG_BYTES) return undefined;
  const { kind } = traffic.read(input, start + TCMSG_BYTES, end);
  return { index: input.view.getInt32(start + 4, HOST_IS_LITTLE_ENDIAN), kind };
}
