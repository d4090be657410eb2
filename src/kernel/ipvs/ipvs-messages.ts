/** IPVS messages: virtual and real servers in the kernel's numbers (linux/ip_vs.h, net/netfilter/ipvs/ip_vs_ctl.c). */

import { familyOf, type IpAddress, type IpFamily, ipBytes, ipFromBytes } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS, protocolOfNumber } from "../../net/protocol.ts";
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
} from "../netlink/attributes.ts";
import { AF_INET, AF_INET6, HOST_IS_LITTLE_ENDIAN, NLM_F_DUMP } from "../netlink/constants.ts";
import { malformed } from "../netlink/errors.ts";
import { beginGeneric } from "../netlink/generic.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";
import type {
  IpvsOperation,
  IpvsStatistics,
  IpvsTimeouts,
  RealServer,
  RealServerKey,
  RealServerState,
  VirtualServer,
  VirtualServerKey,
} from "./ipvs.ts";
import { IPVS_SERVICE_HASHED } from "./ipvs.ts";

export const IPVS_FAMILY_NAME = "IPVS";
const IPVS_VERSION = 1;

const COMMANDS = {
  "add-virtual-server": 1,
  "update-virtual-server": 2,
  "delete-virtual-server": 3,
  "get-virtual-server": 4,
  "add-real-server": 5,
  "update-real-server": 6,
  "delete-real-server": 7,
  "get-real-server": 8,
  "set-timeouts": 12,
  "get-timeouts": 13,
  flush: 17,
} as const;
type IpvsCommand = keyof typeof COMMANDS;

/** IP_VS_CONN_F_MASQ */
const FORWARD_MASQUERADE = 0;
/** One client is one address: the mask of IPv4 (of one byte repeated, so its byte order does not matter), … */
const NETMASK_IPV4 = 0xffff_ffff;
/** … and the prefix length of IPv6. */
const NETMASK_IPV6 = 128;
/** union nf_inet_addr: an IPv4 address fills the first four bytes. */
const ADDRESS_BYTES = 16;

/** struct ip_vs_flags: u32 flags · u32 mask, of which bits are meant. */
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

const statistics = attributes({
  connections: [1, u64host],
  packetsIn: [2, u64host],
  packetsOut: [3, u64host],
  bytesIn: [4, u64host],
  bytesOut: [5, u64host],
});

const service = attributes({
  family: [1, u16host],
  protocol: [2, u16host],
  address: [3, binary],
  port: [4, u16be],
  firewallMark: [5, u32host],
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

function write(messages: MessageBuffer, familyId: number, command: IpvsCommand, value: IpvsMessage, bits = 0): void {
  beginGeneric(messages, familyId, COMMANDS[command], IPVS_VERSION, bits);
  ipvsMessage.write(messages.out, value);
  messages.end();
}

/** Appends the message that carries an operation out. */
export function writeOperation(messages: MessageBuffer, familyId: number, operation: IpvsOperation): void {
  write(messages, familyId, operation.kind, operationAttributes(operation));
}

function operationAttributes(operation: IpvsOperation): IpvsMessage {
  switch (operation.kind) {
    case "add-virtual-server":
    case "update-virtual-server":
      return { service: serviceAttributes(operation.virtualServer) };
    case "delete-virtual-server":
      return { service: serviceKey(operation.virtualServer) };
    case "add-real-server":
    case "update-real-server":
      return {
        service: serviceKey(operation.virtualServer),
        destination: destinationAttributes(operation.realServer),
      };
    case "delete-real-server":
      return { service: serviceKey(operation.virtualServer), destination: destinationKey(operation.realServer) };
  }
}

/** Asks for all virtual servers, of both families and those of firewall marks too. */
export function writeServiceDump(messages: MessageBuffer, familyId: number): void {
  write(messages, familyId, "get-virtual-server", {}, NLM_F_DUMP);
}

export function writeServiceGet(messages: MessageBuffer, familyId: number, key: VirtualServerKey): void {
  write(messages, familyId, "get-virtual-server", { service: serviceKey(key) });
}

/** Asks for the real servers of a virtual server; without one the kernel answers with none. */
export function writeDestinationDump(messages: MessageBuffer, familyId: number, key: VirtualServerKey): void {
  write(messages, familyId, "get-real-server", { service: serviceKey(key) }, NLM_F_DUMP);
}

export function writeFlush(messages: MessageBuffer, familyId: number): void {
  write(messages, familyId, "flush", {});
}

export function writeTimeoutsGet(messages: MessageBuffer, familyId: number): void {
  write(messages, familyId, "get-timeouts", {});
}

/** 0 is left to the kernel, which keeps what it has. */
export function writeTimeoutsSet(messages: MessageBuffer, familyId: number, timeouts: IpvsTimeouts): void {
  const { tcp, tcpFin, udp } = timeouts;
  write(messages, familyId, "set-timeouts", { timeoutTcp: tcp, timeoutTcpFin: tcpFin, timeoutUdp: udp });
}

export function toTimeouts({ timeoutTcp = 0, timeoutTcpFin = 0, timeoutUdp = 0 }: IpvsMessage): IpvsTimeouts {
  return { tcp: timeoutTcp, tcpFin: timeoutTcpFin, udp: timeoutUdp };
}

/** `undefined` for a virtual server of a firewall mark, or of a protocol that is not ours. */
export function toVirtualServer({ service }: IpvsMessage): VirtualServer | undefined {
  if (service === undefined) return undefined;
  const { address, port, scheduler, timeout = 0 } = service;
  const protocol = protocolOfNumber(service.protocol);
  const parsed = address === undefined ? undefined : toAddress(address, service.family);
  if (protocol === undefined || parsed === undefined || port === undefined || scheduler === undefined) return undefined;
  const flags = (service.flags?.flags ?? 0) & ~IPVS_SERVICE_HASHED;
  return { address: parsed, protocol, port, scheduler, flags, timeoutSeconds: timeout };
}

export function toStatistics({ service }: IpvsMessage): IpvsStatistics | undefined {
  const { connections = 0, packetsIn = 0, packetsOut = 0, bytesIn = 0, bytesOut = 0 } = service?.statistics64 ?? {};
  return service && { connections, packetsIn, packetsOut, bytesIn, bytesOut };
}

/** @param family that of the virtual server, for kernels that do not say it (before 3.18). */
export function toRealServer({ destination }: IpvsMessage, family: IpFamily): RealServerState | undefined {
  if (destination?.address === undefined || destination.port === undefined) return undefined;
  const address = toAddress(destination.address, destination.family ?? familyNumber(family));
  if (address === undefined) return undefined;
  const { port, weight = 0, activeConnections = 0, inactiveConnections = 0 } = destination;
  return { address, port, weight, activeConnections, inactiveConnections };
}

function serviceKey({ address, protocol, port }: VirtualServerKey): Service {
  return {
    family: familyNumber(familyOf(address)),
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
  return { address: addressUnion(address), port, family: familyNumber(familyOf(address)) };
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

function familyNumber(family: IpFamily): number {
  return family === "IPv4" ? AF_INET : AF_INET6;
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
