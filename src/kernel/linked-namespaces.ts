/** The network namespaces that share a device with this one: read from their side, which also shows macvlan and ipvlan. */
import { closeSync, openSync } from "node:fs";
import { attempt } from "../logging/attempt.ts";
import { messageOf } from "../logging/message-of.ts";
import type { IpAddress } from "../net/ip.ts";
import { namespaces, OWN, seesOtherNamespaces } from "./find-namespaces.ts";
import { NETLINK_ROUTE } from "./netlink/constants.ts";
import { answersTo } from "./netlink/dump-retry.ts";
import { MessageBuffer } from "./netlink/message-buffer.ts";
import { NetlinkSocket } from "./netlink/socket.ts";
import { ownNetnsCookie } from "./netns-cookie.ts";
import { inNetworkNamespace } from "./network-namespace.ts";
import * as rtnetlink from "./route/rtnetlink.ts";

/** A device of another network namespace, by what it is connected to here. */
export interface LinkedDevice {
  /** The other end (veth) or the lower device (macvlan), and the bridge that this belongs to. */
  readonly here: readonly { readonly name: string; readonly index: number }[];
  readonly addresses: readonly IpAddress[];
}

export interface OtherNamespace {
  readonly path: string;
  readonly cookie: bigint;
  /** Empty if it shares none with this network namespace. */
  readonly devices: readonly LinkedDevice[];
}

/** All other network namespaces that can be entered. */
export async function otherNamespaces(): Promise<readonly OtherNamespace[]> {
  const found: OtherNamespace[] = [];
  await using socket = NetlinkSocket.open(NETLINK_ROUTE);
  const here = new Map((await linksOf(socket)).map((link) => [link.index, link]));
  const own = openSync(OWN, "r");
  try {
    for await (const path of namespaces()) {
      if (path === OWN) continue;
      const inside = attempt(() =>
        inNetworkNamespace(path, () => ({ cookie: ownNetnsCookie(), socket: NetlinkSocket.open(NETLINK_ROUTE) })),
      );
      if (inside === undefined) continue;
      await using there = inside.socket;
      const devices = (await devicesOn(there, own)).flatMap(({ stackedOn, addresses }) => {
        const below = here.get(stackedOn);
        if (below === undefined) return [];
        return [{ here: [below, here.get(below.bridge ?? 0)].filter((one) => one !== undefined), addresses }];
      });
      found.push({ path, cookie: inside.cookie, devices });
    }
  } finally {
    closeSync(own);
  }
  return found;
}

/** The devices of a socket's network namespace that are connected to one of another. @param other its descriptor. */
async function devicesOn(socket: NetlinkSocket, other: number) {
  try {
    const links = (await linksOf(socket)).filter(({ namespaceBelow }) => namespaceBelow !== undefined);
    if (links.length === 0) return [];
    const write = (request: MessageBuffer): void => rtnetlink.writeNamespaceIdGet(request, other);
    const [id] = await answersTo(socket, write, rtnetlink.readNamespaceId);
    // An id outlives the link that it was assigned for: only those of links that are there now count.
    const leading = links.filter(({ namespaceBelow }) => namespaceBelow === id);
    if (leading.length === 0) return [];
    const addresses = await answersTo(socket, rtnetlink.writeAddressDump, rtnetlink.readAddress);
    return leading.map(({ index, stackedOn = 0 }) => ({
      stackedOn,
      addresses: addresses.filter((one) => one.index === index).map(({ address }) => address),
    }));
  } catch {
    // The kernel rejects it: the namespace may be going.
    return [];
  }
}

function linksOf(socket: NetlinkSocket) {
  return answersTo(socket, rtnetlink.writeLinkDump, rtnetlink.readLink);
}

/** The index of the device by which each address is reached from here. */
export async function outputInterfaces(addresses: readonly IpAddress[]): Promise<ReadonlyMap<IpAddress, number>> {
  const found = new Map<IpAddress, number>();
  await using socket = NetlinkSocket.open(NETLINK_ROUTE);
  const request = new MessageBuffer(64 * addresses.length);
  for (const address of addresses) rtnetlink.writeRouteGet(request, address);
  await socket.exchange(request, (reply, at) => {
    const [address, device] = [addresses[at], rtnetlink.readOutputInterface(reply)];
    if (address !== undefined && device !== undefined) found.set(address, device);
  });
  return found;
}

/** Why other network namespaces cannot be entered; undefined if they can. */
export function whyNoneIsEntered(): string | undefined {
  try {
    inNetworkNamespace(OWN, () => {});
  } catch (error) {
    return `${messageOf(error)}: the process needs CAP_SYS_ADMIN`;
  }
  if (seesOtherNamespaces()) return undefined;
  return "pods' network namespaces are not visible: set hostPID, or mount /run/netns of the host";
}

/**
 * The files of namespaces that have one of these addresses: this process's own, and those that have it on a device connected to one of
 * ours. Others are skipped: in containers of another cluster on this machine, the same address belongs to something else.
 */
export async function namespacesWith(addresses: ReadonlySet<string>): Promise<readonly string[]> {
  await using socket = NetlinkSocket.open(NETLINK_ROUTE);
  const own = await answersTo(socket, rtnetlink.writeAddressDump, rtnetlink.readAddress);
  const others = (await otherNamespaces()).filter(({ devices }) =>
    devices.some((device) => device.addresses.some((address) => addresses.has(address))),
  );
  return [...(own.some(({ address }) => addresses.has(address)) ? [OWN] : []), ...others.map(({ path }) => path)];
}
