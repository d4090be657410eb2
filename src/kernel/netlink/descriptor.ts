/**
 * One open netlink file descriptor: system calls with errors as exceptions, and nothing else.
 * `socket.ts` implements requests and answers on top.
 */
import { closeSync, readSync, write, writeSync } from "node:fs";
import { constants } from "node:os";
import { type ByteReader, byteReader } from "./attributes.ts";
import { DatagramSlots } from "./datagram-slots.ts";
import { NetlinkError, systemError } from "./errors.ts";
import { type Libc, libc, reliableErrno } from "./libc.ts";
import { filterReference } from "./notification-filter.ts";
import { endWait, POLLFD_BYTES, putPollFd, untilReadable } from "./readiness.ts";

const AF_NETLINK = 16;
/** SOCK_RAW, close-on-exec and non-blocking: a read must never block the event loop. */
const SOCKET_TYPE = 3 | 0o2000000 | 0o4000;
const SOL_SOCKET = 1;
const SO_SNDBUF = 7;
const SO_RCVBUF = 8;
const SO_ATTACH_FILTER = 26;
const SO_SNDBUFFORCE = 32;
const SO_RCVBUFFORCE = 33;
const SOL_NETLINK = 270;
const NETLINK_ADD_MEMBERSHIP = 1;
const NETLINK_LISTEN_ALL_NSID = 8;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;
/** u16 family · u16 padding · u32 port · u32 groups */
const SOCKADDR_BYTES = 12;
const PORT_AT = 4;
/** The kernel's own share of the send buffer (reference nfnetlink.md §3). */
const SEND_OVERHEAD_BYTES = 32;
const { EAGAIN, EBADF, ENOBUFS } = constants.errno;

/** Dump datagrams have up to 32 KiB; notifications of many set elements can be larger. */
const RECEIVE_CAPACITY = 65536;

export interface DescriptorOptions {
  /** Multicast groups by number. */
  readonly groups?: readonly number[];
  /** Size of the receive buffer in bytes. @default the system's */
  readonly receiveBufferBytes?: number;
  /** Whether rtnetlink filters dumps by the fields of the request (Linux 4.20 and later). @default false */
  readonly filtersDumps?: boolean;
  /** See `SubscriptionOptions`. */
  readonly coversNamespaces?: boolean;
}

export class NetlinkDescriptor {
  readonly #libc: Libc;
  #fd: number;
  /** A `struct pollfd` for checking whether a datagram is queued. */
  readonly #pollFd: Buffer;
  readonly #buffer: Buffer;
  #slots: DatagramSlots | undefined;
  #closed = false;
  #sendLimit: number;
  /** The kernel's number for this socket, which notifications of its changes carry. */
  readonly portId: number;
  /** The last received datagram's bytes; overwritten by the next `receive`. */
  readonly input: ByteReader;

  constructor(protocol: number, options: DescriptorOptions = {}) {
    this.#libc = libc();
    const open = (): number => this.#libc.socket(AF_NETLINK, SOCKET_TYPE, protocol);
    this.#fd = open();
    if (this.#fd < 0) {
      throw systemError(`socket(AF_NETLINK, protocol ${protocol})`, reliableErrno(this.#libc, open));
    }
    this.#buffer = Buffer.alloc(RECEIVE_CAPACITY);
    this.input = byteReader(this.#buffer);
    this.#pollFd = Buffer.alloc(POLLFD_BYTES);
    putPollFd(this.#pollFd, 0, this.#fd);
    try {
      const address = Buffer.alloc(SOCKADDR_BYTES); // port 0 (the kernel picks one), no groups
      address.writeUInt16LE(AF_NETLINK);
      const bind = (): number => this.#libc.bind(this.#fd, address, address.length);
      if (bind() < 0) throw systemError("bind", reliableErrno(this.#libc, bind));
      this.#setOption(SOL_NETLINK, NETLINK_CAP_ACK, 1);
      this.#setOption(SOL_NETLINK, NETLINK_EXT_ACK, 1);
      if (options.filtersDumps === true) this.#setOption(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1);
      if (options.coversNamespaces === true) this.#setOption(SOL_NETLINK, NETLINK_LISTEN_ALL_NSID, 1);
      if (options.receiveBufferBytes !== undefined) this.#growReceiveBuffer(options.receiveBufferBytes);
      for (const group of options.groups ?? []) {
        const join = (): number => (this.#setOption(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group) ? 0 : -1);
        if (join() < 0) throw systemError(`join multicast group ${group}`, reliableErrno(this.#libc, join));
      }
      this.#sendLimit = this.#getOption(SO_SNDBUF) - SEND_OVERHEAD_BYTES;
      this.portId = this.#ownPort();
    } catch (error) {
      this.close();
      throw error;
    }
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  /** Grows the send buffer to fit one datagram of this size. Throws `too_large` if the system does not allow it. */
  reserveSend(sizeBytes: number): void {
    if (sizeBytes <= this.#sendLimit) return;
    // The kernel doubles this value, so it also leaves room for the overhead.
    const wanted = sizeBytes + SEND_OVERHEAD_BYTES;
    if (!this.#setOption(SOL_SOCKET, SO_SNDBUFFORCE, wanted)) this.#setOption(SOL_SOCKET, SO_SNDBUF, wanted);
    this.#sendLimit = this.#getOption(SO_SNDBUF) - SEND_OVERHEAD_BYTES;
    if (sizeBytes > this.#sendLimit) {
      throw new NetlinkError(
        "too_large",
        `netlink: a transaction of ${sizeBytes} bytes exceeds the send buffer of ${this.#sendLimit} bytes; ` +
          "give the process CAP_NET_ADMIN or raise net.core.wmem_max",
      );
    }
  }

  /** Attaches a filter, replacing the previous one. @returns whether the kernel accepted it. */
  attachFilter(instructions: Uint8Array): boolean {
    const reference = filterReference(instructions, this.#libc.addressOf(instructions));
    const isTaken = this.#setBytes(SOL_SOCKET, SO_ATTACH_FILTER, reference);
    // The garbage collector does not see the raw address: this use after the call keeps the instructions alive.
    return isTaken && instructions.length > 0;
  }

  /** Sends one datagram on this thread; the kernel handles it before this returns. */
  sendNow(data: Uint8Array): void {
    try {
      writeSync(this.#fd, data);
    } catch (error) {
      throw fromFileError(`send of ${data.length} bytes`, error);
    }
  }

  /** Sends one datagram on a worker thread. `data` must stay untouched until the promise settles. */
  send(data: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      write(this.#fd, data, 0, data.length, null, (error) => {
        if (error === null) resolve();
        else reject(fromFileError(`send of ${data.length} bytes`, error));
      });
    });
  }

  /**
   * Receives the next datagram into `input` without waiting.
   *
   * @param isExpected skips the check for a queued datagram.
   * @returns its length, or -1 if there is none. Throws `overrun` if the kernel had to drop something, `malformed` if
   * the datagram exceeds the buffer.
   */
  receive(isExpected = false): number {
    // Cheaper than an exception for "nothing there". Negative: a signal (such as SIGCHLD) interrupted the poll.
    if (!isExpected && this.#libc.pollNow(this.#pollFd, 1) <= 0) return -1;
    let length: number;
    try {
      length = readSync(this.#fd, this.#buffer, 0, this.#buffer.length, null);
    } catch (error) {
      const problem = fromFileError("recv", error);
      if (problem.facts.errno === EAGAIN) return -1;
      if (problem.facts.errno !== ENOBUFS) throw problem;
      throw new NetlinkError("overrun", "netlink: receive buffer overrun, the kernel dropped messages", problem.facts);
    }
    if (length === this.#buffer.length) {
      throw new NetlinkError("malformed", `netlink: datagram of ${length} bytes or more, the limit is ${length - 1}`);
    }
    return length;
  }

  /** Receives many datagrams with one call, without waiting; see {@link DatagramSlots.receive}. */
  receiveMany(visit: (input: ByteReader, length: number) => void): "nothing" | "some" | "lost" {
    if (this.#libc.pollNow(this.#pollFd, 1) <= 0) return "nothing";
    this.#slots ??= new DatagramSlots(this.#libc);
    return this.#slots.receive(this.#fd, visit) ? "lost" : "some";
  }

  /** Waits for a datagram (true), {@link wake} or the timeout (false; -1: no limit). */
  readable(timeoutMs: number): Promise<boolean> {
    return untilReadable(this.#fd, timeoutMs);
  }

  /** Ends a pending {@link readable}. */
  wake(): void {
    endWait(this.#fd);
  }

  /** Closes the descriptor; call only when nothing is being sent or awaited. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    closeSync(this.#fd);
    // The system may reuse the number at once: forget it.
    this.#fd = -1;
    putPollFd(this.#pollFd, 0, -1);
  }

  #ownPort(): number {
    const address = Buffer.alloc(SOCKADDR_BYTES);
    const length = new Uint8Array(Uint32Array.of(SOCKADDR_BYTES).buffer);
    const name = (): number => this.#libc.getsockname(this.#fd, address, length);
    if (name() < 0) throw systemError("getsockname", reliableErrno(this.#libc, name));
    return address.readUInt32LE(PORT_AT);
  }

  #growReceiveBuffer(sizeBytes: number): void {
    if (!this.#setOption(SOL_SOCKET, SO_RCVBUFFORCE, sizeBytes)) this.#setOption(SOL_SOCKET, SO_RCVBUF, sizeBytes);
  }

  #setOption(level: number, option: number, value: number): boolean {
    return this.#setBytes(level, option, new Uint8Array(Int32Array.of(Math.min(value, 0x3fff_ffff)).buffer));
  }

  #setBytes(level: number, option: number, bytes: Uint8Array): boolean {
    return this.#libc.setsockopt(this.#fd, level, option, bytes, bytes.length) === 0;
  }

  #getOption(option: number): number {
    const value = Int32Array.of(0);
    const length = new Uint8Array(Uint32Array.of(4).buffer);
    const bytes = new Uint8Array(value.buffer);
    if (this.#libc.getsockopt(this.#fd, SOL_SOCKET, option, bytes, length) < 0) {
      throw systemError("getsockopt", this.#libc.errno());
    }
    return value[0] ?? 0;
  }
}

function fromFileError(call: string, error: unknown): NetlinkError {
  const errno = error instanceof Error && "errno" in error && typeof error.errno === "number" ? -error.errno : EBADF;
  return systemError(call, errno);
}
