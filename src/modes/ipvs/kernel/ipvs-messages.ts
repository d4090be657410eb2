/** IPVS messages for virtual and real servers (linux/ip_vs.h, net/netfilter/ipvs/ip_vs_ctl.c). */

import {
  attributes,
  binary,
  type Codec,
  u16be,
  u16host,
  u32host,
  u64host,
  type ValueOf,
  zstring,
} from "../../../kernel/netlink/attributes.ts";
import { AF_INET, AF_INET6, HOST_IS_LITTLE_ENDIAN, NLM_F_DUMP } from "../../../kernel/netlink/constants.ts";
import { malformed } from "../../../kernel/netlink/errors.ts";
import { putGeneric } from "../../../kernel/netlink/generic.ts";
import type { MessageBuffer } from "../../../kernel/netlink/message-buffer.ts";
import { ADDRESS_FAMILIES } from "../../../kernel/socket-address.ts";
import { familyOf, type IpAddress, type IpFamily, ipBytes, ipFromBytes } from "../../../net/ip.ts";
import { PROTOCOL_NUMBERS, protocolOfNumber } from "../../../net/protocol.ts";
import {
  IPVS_SERVICE_HASHED,
  type IpvsOperation,
  type IpvsTimeouts,
  type RealServer,
  type RealServerKey,
  type RealServerState,
  type VirtualServer,
  type VirtualServerKey,
} from "./ipvs.ts";

export const IPVS_FAMILY_NAME = "IPVS";
const IPVS_VERSION = 1;

/** IP_VS_CONN_F_MASQ */
const FORWARD_MASQUERADE = 0;
/** The full IPv4 mask: each address is one client. All bytes are equal, so the byte order does not matter. */
const NETMASK_IPV4 = 0xffff_ffff;
/** For IPv6 the kernel expects a prefix length. */
const NETMASK_IPV6 = 128;
/** union nf_inet_addr: an IPv4 address fills the first four bytes. */
const ADDRESS_BYTES = 16;

/** struct ip_vs_flags: u32 flags · u32 mask of the bits to set. */
const flags: Codec<{ readonly flags: number; readonly mask: number }> = {
  nested: false,
  write(out, value) {
    out.u32(value.flags, HOST_IS_LITTLE_ENDIAN);
    out.u32(value.mask, HOST_IS_LITTLE_ENDIAN);
  },
  read(input, start, end) {
    if (end - start !== 8) throw malformed(`flags of ${end - start} bytes`, input.bytes, start);
    return { flags: u32host.read(input, start, start + 4), mask: u32host.read(input, start + 4, end) };
  },
};

const statistics = attributes({ connections: [1, u64host] });

const service = attributes({
  family: [1, u16host],
  protocol: [2, u16host],
  address: [3, binary],
  port: [4, u16be],
  scheduler: [6, zstring],
  flags: [7, flags],
  timeout: [8, u32host],
  netmask: [9, u32host],
  statistics64: [12, statistics],
});
type Service = ValueOf<typeof service>;

const destination = attributes({
  address: [1, binary],
  port: [2, u16be],
  forwarding: [3, u32host],
  weight: [4, u32host],
  upperThreshold: [5, u32host],
  lowerThreshold: [6, u32host],
  activeConnections: [7, u32host],
  inactiveConnections: [8, u32host],
  family: [11, u16host],
  statistics64: [12, statistics],
});
type Destination = ValueOf<typeof destination>;

/** The attributes of every IPVS message. */
export const ipvsMessage = attributes({
  service: [1, service],
  destination: [2, destination],
  timeoutTcp: [4, u32host],
  timeoutTcpFin: [5, u32host],
  timeoutUdp: [6, u32host],
});
type IpvsMessage = ValueOf<typeof ipvsMessage>;

/** Requests to the kernel besides operations. */
type IpvsQuestion =
  /** All virtual servers, of both families, including those of firewall marks. */
  | { readonly kind: "list-virtual-servers" }
  | { readonly kind: "get-virtual-server"; readonly virtualServer: VirtualServerKey }
  /** The real servers of a virtual server; if that does not exist, the kernel sends none. */
  | { readonly kind: "list-real-servers"; readonly virtualServer: VirtualServerKey }
  /** The kernel leaves a timeout of 0 unchanged. */
  | { readonly kind: "set-timeouts"; readonly timeouts: IpvsTimeouts }
  | { readonly kind: "get-timeouts" }
  | { readonly kind: "flush" };
export type IpvsRequest = IpvsOperation | IpvsQuestion;
type RequestOf<Kind> = Extract<IpvsRequest, { readonly kind: Kind }>;

interface RequestForm<Request> {
  readonly command: number;
  readonly flags?: number;
  readonly attributes: (request: Request) => IpvsMessage;
}

const REQUESTS: { readonly [Kind in IpvsRequest["kind"]]: RequestForm<RequestOf<Kind>> } = {
  "add-virtual-server": { command: 1, attributes: ofVirtualServer },
  "update-virtual-server": { command: 2, attributes: ofVirtualServer },
  "delete-virtual-server": { command: 3, attributes: ofKey },
  "list-virtual-servers": { command: 4, flags: NLM_F_DUMP, attributes: () => ({}) },
  "get-virtual-server": { command: 4, attributes: ofKey },
  "add-real-server": { command: 5, attributes: ofRealServer },
  "update-real-server": { command: 6, attributes: ofRealServer },
  "delete-real-server": {
    command: 7,
    attributes: ({ virtualServer, realServer }) => ({
      service: serviceKey(virtualServer),
      destination: destinationKey(realServer),
    }),
  },
  "list-real-servers": { command: 8, flags: NLM_F_DUMP, attributes: ofKey },
  "set-timeouts": {
    command: 12,
    attributes: ({ timeouts: { tcp, tcpFin, udp } }) => ({ timeoutTcp: tcp, timeoutTcpFin: tcpFin, timeoutUdp: udp }),
  },
  "get-timeouts": { command: 13, attributes: () => ({}) },
  flush: { command: 17, attributes: () => ({}) },
};

function ofVirtualServer({ virtualServer }: { readonly virtualServer: VirtualServer }): IpvsMessage {
  return { service: serviceAttributes(virtualServer) };
}

function ofKey({ virtualServer }: { readonly virtualServer: VirtualServerKey }): IpvsMessage {
  return { service: serviceKey(virtualServer) };
}

type OfRealServer = RequestOf<"add-real-server" | "update-real-server">;
function ofRealServer({ virtualServer, realServer }: OfRealServer): IpvsMessage {
  return { service: serviceKey(virtualServer), destination: destinationAttributes(realServer) };
}

export function writeRequest<Kind extends IpvsRequest["kind"]>(
  messages: MessageBuffer,
  familyId: number,
  request: RequestOf<Kind> & { readonly kind: Kind },
): void {
  const { command, flags = 0, attributes } = REQUESTS[request.kind];
  putGeneric(messages, familyId, command, IPVS_VERSION, flags, (out) => ipvsMessage.write(out, attributes(request)));
}

export function toTimeouts({ timeoutTcp = 0, timeoutTcpFin = 0, timeoutUdp = 0 }: IpvsMessage): IpvsTimeouts {
  return { tcp: timeoutTcp, tcpFin: timeoutTcpFin, udp: timeoutUdp };
}

/** `undefined` for a virtual server of a firewall mark or of a protocol that no Service has. */
export function toVirtualServer({ service }: IpvsMessage): VirtualServer | undefined {
  if (service === undefined) return undefined;
  const { address, port, scheduler, timeout = 0 } = service;
  const protocol = protocolOfNumber(service.protocol);
  const parsed = address === undefined ? undefined : toAddress(address, service.family);
  if (protocol === undefined || parsed === undefined || port === undefined || scheduler === undefined) return undefined;
  const flags = (service.flags?.flags ?? 0) & ~IPVS_SERVICE_HASHED;
  return { address: parsed, protocol, port, scheduler, flags, timeoutSeconds: timeout };
}

export function toConnections({ service }: IpvsMessage): number | undefined {
  return service && (service.statistics64?.connections ?? 0);
}

/** @param family the virtual server's, for kernels that do not send the real server's (before 3.18). */
export function toRealServer({ destination }: IpvsMessage, family: IpFamily): RealServerState | undefined {
  if (destination?.address === undefined || destination.port === undefined) return undefined;
  const address = toAddress(destination.address, destination.family ?? ADDRESS_FAMILIES[family]);
  if (address === undefined) return undefined;
  const { port, weight = 0, activeConnections = 0, inactiveConnections = 0, statistics64 } = destination;
  const { connections } = statistics64 ?? {};
  return {
    address,
    port,
    weight,
    activeConnections,
    inactiveConnections,
    ...(connections !== undefined && { connections }),
  };
}

function serviceKey({ address, protocol, port }: VirtualServerKey): Service {
  return {
    family: ADDRESS_FAMILIES[familyOf(address)],
    protocol: PROTOCOL_NUMBERS[protocol],
    address: addressUnion(address),
    port,
  };
}

function serviceAttributes(virtualServer: VirtualServer): Service {
  return {
    ...serviceKey(virtualServer),
    scheduler: virtualServer.scheduler,
    flags: { flags: virtualServer.flags, mask: 0xffff_ffff },
    timeout: virtualServer.timeoutSeconds,
    netmask: familyOf(virtualServer.address) === "IPv4" ? NETMASK_IPV4 : NETMASK_IPV6,
  };
}

function destinationKey({ address, port }: RealServerKey): Destination {
  return { address: addressUnion(address), port, family: ADDRESS_FAMILIES[familyOf(address)] };
}

function destinationAttributes(realServer: RealServer): Destination {
  return {
    ...destinationKey(realServer),
    forwarding: FORWARD_MASQUERADE,
    weight: realServer.weight,
    upperThreshold: 0,
    lowerThreshold: 0,
  };
}

function addressUnion(address: IpAddress): Uint8Array {
  const union = new Uint8Array(ADDRESS_BYTES);
  union.set(ipBytes(address));
  return union;
}

function toAddress(union: Uint8Array, family: number | undefined): IpAddress | undefined {
  if (union.length !== ADDRESS_BYTES) return undefined;
  if (family === AF_INET) return ipFromBytes(union.subarray(0, 4));
  return family === AF_INET6 ? ipFromBytes(union) : undefined;
}
