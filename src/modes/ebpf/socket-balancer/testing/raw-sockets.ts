/** IPv4 sockets of kinds that Node cannot create. */
import { closeSync } from "node:fs";
import { createRequire } from "node:module";
import { Socket } from "node:net";
import { constants, endianness } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { errnoName } from "../../../../kernel/netlink/errors.ts";
import { libc, openLibrary } from "../../../../kernel/netlink/libc.ts";
import type { DialReport } from "./dialler-side.ts";

const AF_INET = 2;
const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;
const IPPROTO_MPTCP = 262;
const MSG_DONTWAIT = 0x40;
const MSG_FASTOPEN = 0x20000000;
const ADDRESS_BYTES = 16;
const ATTEMPTS = 100;
const PAUSE_MS = 20;

type Send = (
  fd: number,
  data: Uint8Array,
  length: number,
  flags: number,
  address: Uint8Array | null,
  size: number,
) => bigint | number;
type Receive = (
  fd: number,
  data: Uint8Array,
  length: number,
  flags: number,
  address: Uint8Array,
  size: Uint8Array,
) => bigint | number;
type Ask = (fd: number, address: Uint8Array, size: Uint8Array) => number;

function calls() {
  const library = openLibrary(createRequire(import.meta.url)("koffi"));
  const tail = "(int fd, uint8_t *data, size_t length, int flags, uint8_t *address";
  const sendto: Send = library.func(`long sendto${tail}, uint32_t size)`);
  const recvfrom: Receive = library.func(`long recvfrom${tail}, uint8_t *size)`);
  const getpeername: Ask = library.func("int getpeername(int fd, uint8_t *address, uint8_t *size)");
  return { ...libc(), sendto, recvfrom, getpeername };
}

function socketAddress(address: string, port: number): Uint8Array {
  const bytes = new Uint8Array(ADDRESS_BYTES);
  bytes[endianness() === "LE" ? 0 : 1] = AF_INET;
  bytes.set([port >> 8, port & 0xff, ...address.split(".").map(Number)], 2);
  return bytes;
}

const textOf = (bytes: Uint8Array): string =>
  `${bytes.subarray(4, 8).join(".")} ${((bytes[2] ?? 0) << 8) | (bytes[3] ?? 0)}`;

/** The greeting that a connected stream receives, and its peer according to the kernel. */
function greeting(fd: number): Promise<DialReport> {
  return new Promise((resolve) => {
    const socket = new Socket({ fd });
    const peer = `${socket.remoteAddress} ${socket.remotePort}`;
    let text = "";
    socket.on("data", (chunk) => (text += String(chunk)));
    socket.on("end", () => resolve({ reached: Number(text), peer }));
    socket.on("error", (error) => resolve({ code: error.message }));
  });
}

/** Connects an MPTCP stream. */
export async function dialMultipath(address: string, port: number): Promise<DialReport> {
  const { socket, connect, errno } = calls();
  const fd = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
  if (fd < 0) return { code: `socket: ${errnoName(errno())}` };
  if (connect(fd, socketAddress(address, port), ADDRESS_BYTES) < 0) return { code: errnoName(errno()) };
  return await greeting(fd);
}

/** Connects with TCP Fast Open, which sends the first bytes while connecting. */
export async function dialFastOpen(address: string, port: number): Promise<DialReport> {
  const { socket, sendto, errno } = calls();
  const fd = socket(AF_INET, SOCK_STREAM, 0);
  const data = Buffer.from("?");
  const sent = sendto(fd, data, data.length, MSG_FASTOPEN, socketAddress(address, port), ADDRESS_BYTES);
  if (Number(sent) < 0) return { code: errnoName(errno()) };
  return await greeting(fd);
}

/** Connects one socket to several addresses in turn, disconnecting in between. @returns its peer each time. */
export function dialInSuccession(
  protocol: "tcp" | "udp",
  places: readonly (readonly [string, number])[],
): readonly string[] {
  const { socket, connect, getpeername, errno } = calls();
  const fd = socket(AF_INET, protocol === "tcp" ? SOCK_STREAM : SOCK_DGRAM, 0);
  const peers = places.map((place) => {
    // The address family AF_UNSPEC.
    connect(fd, new Uint8Array(ADDRESS_BYTES), ADDRESS_BYTES);
    if (connect(fd, socketAddress(...place), ADDRESS_BYTES) < 0) return errnoName(errno());
    const peer = new Uint8Array(ADDRESS_BYTES);
    getpeername(fd, peer, new Uint8Array(Uint32Array.of(ADDRESS_BYTES).buffer));
    return textOf(peer);
  });
  closeSync(fd);
  return peers;
}

/**
 * Sends a datagram to an address, from a socket that may be connected to another one.
 * @param others number of sockets that also send one before the answer is read.
 * @param keptOpen how many of these stay open until then.
 */
export async function sendBesides(
  connectedTo: readonly [string, number] | null,
  to: readonly [string, number],
  others = 0,
  keptOpen = 0,
): Promise<DialReport> {
  const { socket, connect, sendto, recvfrom, errno } = calls();
  const open = [socket(AF_INET, SOCK_DGRAM, 0)];
  const [fd = -1] = open;
  try {
    if (connectedTo !== null && connect(fd, socketAddress(...connectedTo), ADDRESS_BYTES) < 0) {
      return { code: errnoName(errno()) };
    }
    const data = Buffer.from("?");
    if (Number(sendto(fd, data, data.length, 0, socketAddress(...to), ADDRESS_BYTES)) < 0) {
      return { code: errnoName(errno()) };
    }
    for (let number = 0; number < others; number++) {
      const other = socket(AF_INET, SOCK_DGRAM, 0);
      sendto(other, data, data.length, 0, socketAddress(...to), ADDRESS_BYTES);
      if (open.length <= keptOpen) open.push(other);
      else closeSync(other);
    }
    const answer = Buffer.alloc(16);
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const from = new Uint8Array(ADDRESS_BYTES);
      const size = new Uint8Array(Uint32Array.of(ADDRESS_BYTES).buffer);
      const length = Number(recvfrom(fd, answer, answer.length, MSG_DONTWAIT, from, size));
      if (length >= 0) return { reached: Number(answer.subarray(0, length).toString()), peer: textOf(from) };
      if (errno() !== constants.errno.EAGAIN) return { code: errnoName(errno()) };
      await sleep(PAUSE_MS);
    }
    return { code: "silence" };
  } finally {
    for (const one of open) closeSync(one);
  }
}
