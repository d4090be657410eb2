/** sock_diag messages for UDP and TCP sockets (reference ebpf.md §1.8). The kernel loads udp_diag and tcp_diag on the first request. */
import type { Flow } from "../../net/flow.ts";
import { type IpAddress, ipBytes, ipFromBytes } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../net/protocol.ts";
import type { Carried } from "../conntrack/conntrack.ts";
import { forEachAttribute } from "../netlink/attributes.ts";
import { AF_INET, AF_INET6, HOST_IS_LITTLE_ENDIAN, NLM_F_ACK, NLM_F_DUMP } from "../netlink/constants.ts";
import type { Reply } from "../netlink/frames.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";

export const NETLINK_SOCK_DIAG = 4;
const SOCK_DIAG_BY_FAMILY = 20;
const SOCK_DESTROY = 21;
const ALL_STATES = 0xffff_ffff;
/** `enum` of net/tcp_states.h. */
export const SOCKET_STATES: readonly string[] =
  "NONE ESTABLISHED SYN_SENT SYN_RECV FIN_WAIT1 FIN_WAIT2 TIME_WAIT CLOSE CLOSE_WAIT LAST_ACK LISTEN CLOSING".split(
    " ",
  );
const TCP_LISTEN = SOCKET_STATES.indexOf("LISTEN");
/** For UDP this means connected. */
const ESTABLISHED = 1 << SOCKET_STATES.indexOf("ESTABLISHED");
const CLIENT_STATES = ALL_STATES & ~(1 << TCP_LISTEN) & ~(1 << SOCKET_STATES.indexOf("CLOSE"));

/** `inet_diag_sockid`: ports and addresses of both ends, the interface, and the cookie. */
const ID_BYTES = 48;
const LOCAL_AT = 4;
const REMOTE_PORT_AT = 2;
const REMOTE_AT = 20;
const COOKIE_AT = 40;
/** Offset of the id in `inet_diag_msg`. */
const ID_AT = 4;
const MESSAGE_BYTES = 72;
const USER_AT = 64;
/** The extension, and the type of its attribute, which holds `tcp_info`; we read this much of it. */
const INET_DIAG_INFO = 2;
const TCP_INFO_BYTES = 144;
/** `::ffff:0:0/96` */
const MAPPED_PREFIX = Buffer.from("00000000000000000000ffff", "hex");

export type SocketFamily = typeof AF_INET | typeof AF_INET6;

/** A UDP or TCP socket. */
export interface DiagSocket {
  readonly family: SocketFamily;
  /** Unique since the machine started. */
  readonly cookie: bigint;
  /** The name of the TCP state: `ESTABLISHED`, `SYN_SENT`, …; `CLOSE` for unconnected UDP. */
  readonly state: string;
  readonly local: IpAddress;
  readonly localPort: number;
  /** The peer; the IPv4 address if an IPv6 socket has it as `::ffff:a.b.c.d`. */
  readonly remote: IpAddress;
  readonly remotePort: number;
  /** The kernel's `inet_diag_sockid`, unchanged. */
  readonly id: Uint8Array;
  /** The uid of its owner. */
  readonly user: number;
}

/** Requests the connected UDP sockets of one socket family. */
export function writeConnectedDump(request: MessageBuffer, family: SocketFamily): void {
  writeRequest(request, { type: SOCK_DIAG_BY_FAMILY, flags: NLM_F_DUMP, family, states: ESTABLISHED });
}

/** Requests the sockets of one family that may belong to clients; for TCP, with the data for {@link readTcpInfo}. */
export function writeClientDump(request: MessageBuffer, family: SocketFamily, protocol: "TCP" | "UDP"): void {
  writeRequest(request, {
    ...{ type: SOCK_DIAG_BY_FAMILY, flags: NLM_F_DUMP, family, protocol: PROTOCOL_NUMBERS[protocol] },
    ...(protocol === "TCP" ? { states: CLIENT_STATES, extensions: 1 << (INET_DIAG_INFO - 1) } : { states: ALL_STATES }),
  });
}

/**
 * Disconnects a UDP socket (its owner gets ECONNABORTED, and may connect again) or ends a TCP connection. Errors: ENOENT if it is
 * gone, EPERM without CAP_NET_ADMIN, EOPNOTSUPP if the kernel was built without INET_DIAG_DESTROY.
 *
 * @param id omitted: names no socket, and so only tests whether the kernel would do it.
 */
export function writeDestroy(
  request: MessageBuffer,
  { family, id }: Pick<DiagSocket, "family"> & { readonly id?: Uint8Array },
  protocol: "TCP" | "UDP" = "UDP",
): void {
  writeRequest(request, {
    ...{ type: SOCK_DESTROY, flags: NLM_F_ACK, family, states: ALL_STATES, protocol: PROTOCOL_NUMBERS[protocol] },
    ...(id !== undefined && { id }),
  });
}

/** A connection, by the addresses that its client has. */
export type Connection = Pick<Flow, "sourceIP" | "sourcePort" | "destinationIP" | "destinationPort">;

/** Requests the client's socket of a connection. */
export function writeTcpQuestion(request: MessageBuffer, flow: Connection): void {
  const source = ipBytes(flow.sourceIP);
  const id = new Uint8Array(ID_BYTES);
  const view = new DataView(id.buffer);
  view.setUint16(0, flow.sourcePort);
  view.setUint16(REMOTE_PORT_AT, flow.destinationPort);
  id.set(source, LOCAL_AT);
  id.set(ipBytes(flow.destinationIP), REMOTE_AT);
  // INET_DIAG_NOCOOKIE
  id.fill(0xff, COOKIE_AT);
  writeRequest(request, {
    ...{ type: SOCK_DIAG_BY_FAMILY, flags: NLM_F_ACK, family: source.length === 4 ? AF_INET : AF_INET6 },
    ...{ states: ALL_STATES, protocol: PROTOCOL_NUMBERS.TCP, id },
  });
}

interface Request {
  readonly type: number;
  readonly flags: number;
  readonly family: SocketFamily;
  readonly states: number;
  /** @default UDP */
  readonly protocol?: number;
  /** @default none */
  readonly extensions?: number;
  readonly id?: Uint8Array;
}

/** `inet_diag_req_v2` */
function writeRequest(
  request: MessageBuffer,
  { type, flags, family, states, protocol = PROTOCOL_NUMBERS.UDP, extensions = 0, id }: Request,
): void {
  request.put(type, flags, (out) => {
    out.u8(family);
    out.u8(protocol);
    out.u8(extensions);
    out.u8(0);
    out.u32(states, HOST_IS_LITTLE_ENDIAN);
    out.raw(id ?? new Uint8Array(ID_BYTES));
  });
}

/** Undefined for messages of another type, family or length. */
export function readSocket(reply: Reply): DiagSocket | undefined {
  if (reply.type !== SOCK_DIAG_BY_FAMILY || reply.end - reply.start < MESSAGE_BYTES) return undefined;
  const { bytes, view } = reply.input;
  const family = bytes[reply.start];
  if (family !== AF_INET && family !== AF_INET6) return undefined;
  const at = reply.start + ID_AT;
  const id = new Uint8Array(bytes.subarray(at, at + ID_BYTES));
  const [low, high] = [0, 4].map((word) => BigInt(view.getUint32(at + COOKIE_AT + word, HOST_IS_LITTLE_ENDIAN)));
  return {
    family,
    cookie: (low ?? 0n) | ((high ?? 0n) << 32n),
    state: SOCKET_STATES[bytes[reply.start + 1] ?? 0] ?? "NONE",
    local: addressIn(id.slice(LOCAL_AT, LOCAL_AT + (family === AF_INET ? 4 : 16))),
    localPort: view.getUint16(at),
    remote: addressIn(id.slice(REMOTE_AT, REMOTE_AT + (family === AF_INET ? 4 : 16))),
    remotePort: view.getUint16(at + REMOTE_PORT_AT),
    id,
    user: view.getUint32(reply.start + USER_AT, HOST_IS_LITTLE_ENDIAN),
  };
}

/** The kernel's statistics of a TCP socket. */
export interface TcpInfo {
  readonly rttMs: number;
  readonly retransmits: number;
  /** Segments, and acknowledged bytes. */
  readonly sent: Carried;
  readonly received: Carried;
}

/** Undefined if the kernel sends none, as for a socket in TIME_WAIT. */
export function readTcpInfo({ input, start, end }: Reply): TcpInfo | undefined {
  let info: TcpInfo | undefined;
  forEachAttribute(input, start + MESSAGE_BYTES, end, (type, at, to) => {
    if (type !== INET_DIAG_INFO || to - at < TCP_INFO_BYTES) return;
    const word = (offset: number) => input.view.getUint32(at + offset, HOST_IS_LITTLE_ENDIAN);
    const wide = (offset: number) => Number(input.view.getBigUint64(at + offset, HOST_IS_LITTLE_ENDIAN));
    info = {
      rttMs: word(68) / 1000,
      retransmits: word(100),
      sent: { packets: word(136), bytes: wide(120) },
      received: { packets: word(140), bytes: wide(128) },
    };
  });
  return info;
}

function addressIn(bytes: Uint8Array): IpAddress {
  const isMapped = bytes.length === 16 && Buffer.compare(bytes.subarray(0, MAPPED_PREFIX.length), MAPPED_PREFIX) === 0;
  return ipFromBytes(isMapped ? bytes.slice(MAPPED_PREFIX.length) : bytes);
}
