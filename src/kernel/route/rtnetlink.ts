/** rtnetlink messages for devices, addresses and routes (linux/rtnetlink.h, if_link.h, if_addr.h). */
import { familyOf, type IpAddress, type IpFamily, ipBytes, ipFromBytes } from "../../net/ip.ts";
import { attributes, binary, u32host, type ValueOf, zstring } from "../netlink/attributes.ts";
import { HOST_IS_LITTLE_ENDIAN, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL } from "../netlink/constants.ts";
import { malformed } from "../netlink/errors.ts";
import type { Reply } from "../netlink/frames.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";
import { ADDRESS_FAMILIES } from "../socket-address.ts";
import type { LinkDescription } from "./links.ts";

const RTM_NEWLINK = 16;
const RTM_DELLINK = 17;
const RTM_GETLINK = 18;
const RTM_NEWADDR = 20;
const RTM_DELADDR = 21;
const RTM_GETADDR = 22;
const RTM_NEWROUTE = 24;
const RTM_GETROUTE = 26;
const RTM_NEWNSID = 88;
const RTM_GETNSID = 90;

/** Multicast groups. */
export const RTNLGRP_LINK = 1;
export const RTNLGRP_IPV4_IFADDR = 5;
export const RTNLGRP_IPV6_IFADDR = 9;

const IFF_UP = 1;
/** Omits counters from answers about devices. */
const RTEXT_FILTER_SKIP_STATS = 8;
/** u8 family · u8 padding · u16 type · i32 index · u32 flags · u32 mask of changed flags */
export const IFINFOMSG_BYTES = 16;
/** u8 family · u8 prefix length · u8 flags · u8 scope · u32 interface index */
const IFADDRMSG_BYTES = 8;
/** u8 family · u8 destination length · u8 source length · u8 tos · u8 table · u8 protocol · u8 scope · u8 type · u32 flags */
const RTMSG_BYTES = 12;
const RT_TABLE_LOCAL = 255;
const AF_UNSPEC = 0;
const RTN_LOCAL = 2;

const linkInfo = attributes({ kind: [1, zstring] });
const linkAttributes = attributes({
  name: [3, zstring],
  stackedOn: [5, u32host],
  bridge: [10, u32host],
  queueLength: [13, u32host],
  info: [18, linkInfo],
  extendedMask: [29, u32host],
  namespaceBelow: [37, u32host],
});
const interfaceAddress = attributes({ address: [1, binary], local: [2, binary] });
const routeAttributes = attributes({ destination: [1, binary], outputInterface: [4, u32host] });

/** `struct rtgenmsg`, padded. */
const RTGENMSG_BYTES = 4;
/** `NETNSA_*` of linux/net_namespace.h. */
const namespaceAttributes = attributes({ id: [1, u32host], descriptor: [3, u32host] });
const NETNSA_NSID_NOT_ASSIGNED = 0xffff_ffff;

/** Requests the id of a network namespace within the socket's own; the kernel assigns one when a link leads there. */
export function writeNamespaceIdGet(messages: MessageBuffer, descriptor: number): void {
  messages.put(RTM_GETNSID, 0, (out) => {
    out.zeros(RTGENMSG_BYTES);
    namespaceAttributes.write(out, { descriptor });
  });
}

/** Undefined if the namespace has no id. */
export function readNamespaceId({ type, input, start, end }: Reply): number | undefined {
  if (type !== RTM_NEWNSID || end - start < RTGENMSG_BYTES) return undefined;
  const { id } = namespaceAttributes.read(input, start + RTGENMSG_BYTES, end);
  return id === NETNSA_NSID_NOT_ASSIGNED ? undefined : id;
}

/** Requests one device by name (ENODEV if there is none). */
export function writeLinkGet(messages: MessageBuffer, name: string): void {
  putLink(messages, RTM_GETLINK, 0, 0, { name, extendedMask: RTEXT_FILTER_SKIP_STATS });
}

/** Requests all devices. */
export function writeLinkDump(messages: MessageBuffer): void {
  putLink(messages, RTM_GETLINK, NLM_F_DUMP, 0, { extendedMask: RTEXT_FILTER_SKIP_STATS });
}

/** Creates a dummy device, down. Like upstream's library, and unlike `ip link add`, it sets the queue length to 0. */
export function writeDummyCreate(messages: MessageBuffer, name: string): void {
  putLink(messages, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0, { name, queueLength: 0, info: { kind: "dummy" } });
}

export function writeLinkDelete(messages: MessageBuffer, index: number): void {
  putLink(messages, RTM_DELLINK, 0, index, {});
}

/** Requests all addresses of a family, or of both. */
export function writeAddressDump(messages: MessageBuffer, family?: IpFamily): void {
  putAddress(messages, RTM_GETADDR, NLM_F_DUMP, family === undefined ? AF_UNSPEC : ADDRESS_FAMILIES[family], 0, 0, {});
}

/** Requests the route to an address. */
export function writeRouteGet(messages: MessageBuffer, address: IpAddress): void {
  const destination = ipBytes(address);
  messages.put(RTM_GETROUTE, 0, (out) => {
    out.u8(ADDRESS_FAMILIES[familyOf(address)]);
    out.u8(destination.length * 8);
    out.zeros(RTMSG_BYTES - 2);
    routeAttributes.write(out, { destination });
  });
}

/** The device by which a route leaves. */
export function readOutputInterface({ type, input, start, end }: Reply): number | undefined {
  return type === RTM_NEWROUTE ? routeAttributes.read(input, start + RTMSG_BYTES, end).outputInterface : undefined;
}

/** Requests all routes to the node itself. Without `filtersDumps`, the kernel also sends other routes. */
export function writeLocalRouteDump(messages: MessageBuffer, family: IpFamily): void {
  messages.put(RTM_GETROUTE, NLM_F_DUMP, (out) => {
    out.raw(Uint8Array.of(ADDRESS_FAMILIES[family], 0, 0, 0, RT_TABLE_LOCAL, 0, 0, RTN_LOCAL));
    out.u32(0);
  });
}

/** Adds or removes an address. @param prefixLength @default the full length */
export function writeAddress(
  messages: MessageBuffer,
  verb: "add" | "remove",
  index: number,
  address: IpAddress,
  prefixLength?: number,
): void {
  const bytes = ipBytes(address);
  const [type, flags] = verb === "add" ? [RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL] : [RTM_DELADDR, 0];
  const family = ADDRESS_FAMILIES[familyOf(address)];
  putAddress(messages, type, flags, family, prefixLength ?? bytes.length * 8, index, { address: bytes, local: bytes });
}

function putLink(
  messages: MessageBuffer,
  type: number,
  flags: number,
  index: number,
  value: ValueOf<typeof linkAttributes>,
): void {
  messages.put(type, flags, (out) => {
    out.patchHostU32(out.zeros(IFINFOMSG_BYTES) + 4, index);
    linkAttributes.write(out, value);
  });
}

function putAddress(
  messages: MessageBuffer,
  type: number,
  flags: number,
  family: number,
  prefixLength: number,
  index: number,
  value: ValueOf<typeof interfaceAddress>,
): void {
  messages.put(type, flags, (out) => {
    out.u8(family);
    out.u8(prefixLength);
    out.u16(0);
    out.u32(index, HOST_IS_LITTLE_ENDIAN);
    interfaceAddress.write(out, value);
  });
}

interface LinkMessage extends LinkDescription {
  readonly isDeleted: boolean;
  /** The index of the bridge that it belongs to. */
  readonly bridge: number | undefined;
  /** The index of its other end (veth) or of its lower device (macvlan). */
  readonly stackedOn: number | undefined;
  /** The id of the network namespace of {@link stackedOn}; undefined if that is its own. */
  readonly namespaceBelow: number | undefined;
}

/** `undefined` for messages of other types. Throws `malformed`. */
export function readLink({ type, input, start, end }: Reply): LinkMessage | undefined {
  if (type !== RTM_NEWLINK && type !== RTM_DELLINK) return undefined;
  if (end - start < IFINFOMSG_BYTES) throw malformed("no ifinfomsg", input.bytes, start);
  const found = linkAttributes.read(input, start + IFINFOMSG_BYTES, end);
  const { name = "", info, bridge, stackedOn, namespaceBelow } = found;
  const index = input.view.getInt32(start + 4, HOST_IS_LITTLE_ENDIAN);
  const flags = input.view.getUint32(start + 8, HOST_IS_LITTLE_ENDIAN);
  return {
    ...{ name, index, kind: info?.kind, isUp: (flags & IFF_UP) !== 0, isDeleted: type === RTM_DELLINK },
    ...{ bridge, stackedOn, namespaceBelow },
  };
}

/** An address on a device, or the destination of a route. */
export interface AddressMessage {
  readonly address: IpAddress;
  readonly prefixLength: number;
  /** The index of the device. */
  readonly index: number;
}

/** `undefined` for messages of other types and for addresses that are not IP addresses. Throws `malformed`. */
export function readAddress({ type, input, start, end }: Reply): AddressMessage | undefined {
  if (type !== RTM_NEWADDR && type !== RTM_DELADDR) return undefined;
  if (end - start < IFADDRMSG_BYTES) throw malformed("no ifaddrmsg", input.bytes, start);
  const { address, local } = interfaceAddress.read(input, start + IFADDRMSG_BYTES, end);
  // On point-to-point links IFA_ADDRESS is the peer and IFA_LOCAL is ours.
  const own = local ?? address;
  if (own?.length !== 4 && own?.length !== 16) return undefined;
  return {
    address: ipFromBytes(own),
    prefixLength: input.view.getUint8(start + 1),
    index: input.view.getUint32(start + 4, HOST_IS_LITTLE_ENDIAN),
  };
}

/** Reads a route to the node itself; `undefined` for other routes and messages of other types. Throws `malformed`. */
export function readLocalRoute({ type, input, start, end }: Reply): AddressMessage | undefined {
  if (type !== RTM_NEWROUTE) return undefined;
  if (end - start < RTMSG_BYTES) throw malformed("no rtmsg", input.bytes, start);
  if (input.view.getUint8(start + 4) !== RT_TABLE_LOCAL || input.view.getUint8(start + 7) !== RTN_LOCAL)
    return undefined;
  const { destination, outputInterface } = routeAttributes.read(input, start + RTMSG_BYTES, end);
  if (destination?.length !== 4 && destination?.length !== 16) return undefined;
  return {
    address: ipFromBytes(destination),
    prefixLength: input.view.getUint8(start + 1),
    index: outputInterface ?? 0,
  };
}
