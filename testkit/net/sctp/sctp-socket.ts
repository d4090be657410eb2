/**
 * SCTP associations in the one-to-one style (RFC 6458 §4), for which Node.js has no sockets. Once open they are streams
 * like TCP's, so `node:net` takes over the descriptor: a server listens on it, a socket reads and writes.
 */

import { closeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { errnoName } from "../../../src/kernel/netlink/errors.ts";
import { libc, reliableErrno } from "../../../src/kernel/netlink/libc.ts";
import { ADDRESS_FAMILIES, socketAddress } from "../../../src/kernel/socket-address.ts";
import { familyOf, type IpAddress } from "../../../src/net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../../src/net/protocol.ts";

const SOCK_STREAM = 1;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
/** IP_RECVERR, IPV6_RECVERR: so that the kernel reports an ICMP refusal to the socket instead of retrying. */
const RECEIVE_ERRORS = { IPv4: { level: 0, option: 11 }, IPv6: { level: 41, option: 25 } } as const;
const IPPROTO_IPV6 = 41;
const IPV6_V6ONLY = 26;
const SOL_SOCKET = 1;
const SO_REUSEADDR = 2;
const SO_ERROR = 4;
/** struct sctp_rtoinfo: s32 association · u32 initial · u32 maximum · u32 minimum, in milliseconds; 0: unchanged. */
const SCTP_RTOINFO = 0;
/**
 * Delay before the first packet is sent again. The kernel's 3 s are what a refusal would take: while the first is being
 * sent the socket is busy, and gets no ICMP error.
 */
const INITIAL_RTO_MS = 250;
/** How often an association in progress is checked. */
const LOOK_MS = 5;
/** struct pollfd: s32 descriptor · s16 requested events · s16 returned events. */
const POLLOUT = 4;
const ECONNREFUSED = 111;
/** EISCONN, EALREADY, EINPROGRESS. */
const UNDER_WAY: readonly number[] = [106, 114, 115];

/** Where an association goes to, or is accepted. */
export interface SctpEndpoint {
  readonly address: IpAddress;
  readonly port: number;
}

export type SctpConnection =
  /** The descriptor belongs to the caller. */
  | { readonly kind: "open"; readonly fd: number }
  /** By an ABORT chunk or an ICMP error. */
  | { readonly kind: "refused" }
  | { readonly kind: "timeout" }
  | { readonly kind: "failed"; readonly detail: string };

/** Whether this kernel has SCTP (it may load the module now). */
export function hasSctp(): boolean {
  const fd = openSocket("IPv4");
  if (fd < 0) return false;
  closeSync(fd);
  return true;
}

/** A descriptor that is bound but not listening yet. @throws Error if the kernel has no SCTP or the port is taken. */
export function bindSctp(at: SctpEndpoint): number {
  const fd = socketFor(at);
  try {
    // Remains of old associations do not prevent it; another server does.
    setOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    bindTo(fd, at);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  return fd;
}

/**
 * Opens an association.
 * @param from the one address to use; without it the peer is told all addresses of this namespace and tries them, which
 *   no translation on the path survives. @default all
 * @throws Error if the kernel has no SCTP or the address is not ours.
 */
export async function connectSctp(to: SctpEndpoint, timeoutMs: number, from?: IpAddress): Promise<SctpConnection> {
  const fd = socketFor(to);
  let connection: SctpConnection | undefined;
  try {
    const { level, option } = RECEIVE_ERRORS[familyOf(to.address)];
    setOption(fd, level, option, 1);
    setOption(fd, PROTOCOL_NUMBERS.SCTP, SCTP_RTOINFO, 0, INITIAL_RTO_MS, 0, INITIAL_RTO_MS);
    if (from !== undefined) bindTo(fd, { address: from, port: 0 });
    connection = await established(fd, to, timeoutMs);
    return connection;
  } finally {
    if (connection?.kind !== "open") closeSync(fd);
  }
}

function bindTo(fd: number, at: SctpEndpoint): void {
  const address = socketAddress(at);
  if (libc().bind(fd, address, address.length) < 0) {
    throw new Error(`SCTP port ${at.port} on ${at.address} is unavailable`);
  }
}

async function established(fd: number, to: SctpEndpoint, timeoutMs: number): Promise<SctpConnection> {
  const calls = libc();
  const address = socketAddress(to);
  const connect = () => calls.connect(fd, address, address.length);
  if (connect() >= 0) return { kind: "open", fd };
  const started = reliableErrno(calls, connect);
  // Calling it again starts over if the first attempt was already refused.
  if (!UNDER_WAY.includes(started)) return { kind: "failed", detail: errnoName(started) };
  // Waiting in `connect` itself would not end on an ICMP error.
  if (!(await becomesWritable(fd, timeoutMs))) return { kind: "timeout" };
  const cause = pendingError(fd);
  if (cause === 0) return { kind: "open", fd };
  return cause === ECONNREFUSED ? { kind: "refused" } : { kind: "failed", detail: errnoName(cause) };
}

/** Polls: waiting would take one of few worker threads for every association. */
async function becomesWritable(fd: number, timeoutMs: number): Promise<boolean> {
  const asked = Buffer.from(new Int32Array([fd, POLLOUT]).buffer);
  const end = performance.now() + timeoutMs;
  // Fails on a pending signal.
  while (libc().pollNow(asked, 1) <= 0) {
    if (performance.now() > end) return false;
    await sleep(LOOK_MS);
  }
  return true;
}

function openSocket(family: "IPv4" | "IPv6"): number {
  return libc().socket(ADDRESS_FAMILIES[family], SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, PROTOCOL_NUMBERS.SCTP);
}

function socketFor({ address }: SctpEndpoint): number {
  const family = familyOf(address);
  const fd = openSocket(family);
  if (fd < 0) throw new Error("the kernel has no SCTP sockets: load the module sctp (modprobe sctp)");
  // Otherwise the peer is also told the addresses of the other family, and uses them, bypassing any translation.
  if (family === "IPv6") setOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  return fd;
}

function setOption(fd: number, level: number, option: number, ...values: readonly number[]): void {
  const bytes = Buffer.from(new Int32Array(values).buffer);
  if (libc().setsockopt(fd, level, option, bytes, bytes.length) < 0) throw new Error(`setsockopt(${level}, ${option})`);
}

function pendingError(fd: number): number {
  const value = new Int32Array(1);
  libc().getsockopt(fd, SOL_SOCKET, SO_ERROR, Buffer.from(value.buffer), Buffer.from(new Uint32Array([4]).buffer));
  return value[0] ?? 0;
}
