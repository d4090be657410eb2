/** Messages of sock_diag about UDP sockets (reference ebpf.md §1.8). The kernel loads udp_diag when it is first asked. */
import { type IpAddress, ipFromBytes } from "../../net/ip.ts";
import { AF_INET, AF_INET6, HOST_IS_LITTLE_ENDIAN, NLM_F_ACK, NLM_F_DUMP } from "../netlink/constants.ts";
import type { Reply } from "../netlink/frames.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";

export const NETLINK_SOCK_DIAG = 4;
const SOCK_DIAG_BY_FAMILY = 20;
const SOCK_DESTROY = 21;
const IPPROTO_UDP = 17;
/** Of UDP: connected. */
const ESTABLISHED = 1 << 1;
const ALL_STATES = 0xffff_ffff;

/** `inet_diag_sockid`: both ends, the interface, and the cookie. */
const ID_BYTES = 48;
const REMOTE_PORT_AT = 2;
const REMOTE_AT = 20;
const COOKIE_AT = 40;
/** In `inet_diag_msg`. */
const ID_AT = 4;
const MESSAGE_BYTES = 72;
/** `::ffff:0:0/96` */
const MAPPED_PREFIX = Buffer.from("00000000000000000000ffff", "hex");

export type SocketFamily = typeof AF_INET | typeof AF_INET6;

/** A UDP socket that is connected. */
export interface ConnectedUdpSocket {
  readonly family: SocketFamily;
  /** Unique since the machine started. */
  readonly cookie: bigint;
  /** Its peer; an IPv4 address also where an IPv6 socket has it as `::ffff:a.b.c.d`. */
  readonly remote: IpAddress;
  readonly remotePort: number;
  /** What the kernel knows it by, as it said it. */
  readonly id: Uint8Array;
}

/** Asks for the connected UDP sockets of one family of sockets. */
export function writeConnectedDump(request: MessageBuffer, family: SocketFamily): void {
  writeRequest(request, { type: SOCK_DIAG_BY_FAMILY, flags: NLM_F_DUMP, family, states: ESTABLISHED });
}

/**
 * Disconnects a socket: its owner gets ECONNABORTED, and may connect again. Refused with ENOENT when it is gone, EPERM without
 * CAP_NET_ADMIN, EOPNOTSUPP when the kernel was built without INET_DIAG_DESTROY. @param id of no socket: asks only.
 */
export function writeDestroy(
  request: MessageBuffer,
  { family, id }: Pick<ConnectedUdpSocket, "family"> & { readonly id?: Uint8Array },
): void {
  writeRequest(request, {
    type: SOCK_DESTROY,
    flags: NLM_F_ACK,
    family,
    states: ALL_STATES,
    ...(id !== undefined && { id }),
  });
}

interface Request {
  readonly type: number;
  readonly flags: number;
  readonly family: SocketFamily;
  readonly states: number;
  readonly id?: Uint8Array;
}

/** `inet_diag_req_v2` */
function writeRequest(request: MessageBuffer, { type, flags, family, states, id }: Request): void {
  request.begin(type, flags);
  const { out } = request;
  out.u8(family);
  out.u8(IPPROTO_UDP);
  out.u8(0);
  out.u8(0);
  out.u32(states, HOST_IS_LITTLE_ENDIAN);
  out.raw(id ?? new Uint8Array(ID_BYTES));
  request.end();
}

/** Undefined for what is none: another message, or one of another length. */
export function readConnected(reply: Reply): ConnectedUdpSocket | undefined {
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
    remote: addressIn(id.slice(REMOTE_AT, REMOTE_AT + (family === AF_INET ? 4 : 16))),
    remotePort: view.getUint16(at + REMOTE_PORT_AT),
    id,
  };
}

function addressIn(bytes: Uint8Array): IpAddress {
  const isMapped = bytes.length === 16 && Buffer.compare(bytes.subarray(0, MAPPED_PREFIX.length), MAPPED_PREFIX) === 0;
  return ipFromBytes(isMapped ? bytes.slice(MAPPED_PREFIX.length) : bytes);
}
