/**
 * Ends of connections and datagrams as fast as system calls allow, without Node's sockets around them. `serve PORT`
 * accepts TCP and reads what comes, `sink PORT` reads datagrams, both until they are ended. `client` answers each line
 * of standard input, a {@link LoopTask}, with {@link LoopFigures}. `reach` answers each line, an address and a port,
 * with a line once the first connection has failed, and {@link ReachFigures} once one has succeeded.
 */
import { closeSync } from "node:fs";
import { createRequire } from "node:module";
import { endianness } from "node:os";
import { libc, openLibrary } from "../src/kernel/netlink/libc.ts";
import { median } from "./table.ts";
import { answerLines } from "./workers.ts";

/** New connections; datagrams of a connected socket; datagrams of an unconnected one, each with its address; bytes of one connection. */
export const LOADS = ["connect", "send", "sendto", "stream"] as const;
export type Load = (typeof LOADS)[number];

export type Target = readonly [address: string, port: number];

export interface LoopTask {
  readonly load: Load;
  /** IPv4 addresses and ports; connections go to each in turn, everything else to the first. */
  readonly targets: readonly Target[];
  /** Connections or datagrams; for a stream, MB. */
  readonly count: number;
}

/** Per connection, datagram or MB. */
export interface LoopFigures {
  /** Elapsed time: for connections the median, otherwise the total divided by their number. */
  readonly us: number;
  /** Processor time of this thread, including sockets' making and closing, and the kernel's direct work in it: also the path through the node. */
  readonly cpuUs: number;
  readonly failures: number;
}

export interface ReachFigures {
  /** When it connected, by the monotonic clock. */
  readonly connectedMs: number;
  /** How long one attempt took, from its start to the start of the next. */
  readonly periodUs: number;
}

const AF_INET = 2;
const [SOCK_STREAM, SOCK_DGRAM] = [1, 2];
const SOL_SOCKET = 1;
const [SO_REUSEADDR, SO_LINGER, SO_RCVTIMEO] = [2, 13, 20];
const BACKLOG = 4096;
/** Closes with a reset: nothing waits for its end. */
const AT_ONCE = new Uint8Array(Int32Array.of(1, 0).buffer);
/** Seconds and microseconds. */
const LOOK_EVERY = new Uint8Array(BigInt64Array.of(1n, 0n).buffer);
const NEVER = new Uint8Array(16);
const YES = new Uint8Array(Int32Array.of(1).buffer);
const DATAGRAM_BYTES = 100;
const CHUNK_BYTES = 64 * 1024;
const MB = 1_000_000;
const LONGEST_MS = 10_000;

const calls = libc();
const library = openLibrary(createRequire(import.meta.url)("koffi"));
const listen = library.func("int listen(int fd, int backlog)");
const accept = library.func("int accept(int fd, void *address, void *length)");
const recv = library.func("long recv(int fd, uint8_t *bytes, size_t length, int flags)");
const send = library.func("long send(int fd, uint8_t *bytes, size_t length, int flags)");
const sendto = library.func(
  "long sendto(int fd, uint8_t *bytes, size_t length, int flags, uint8_t *address, uint32_t addressLength)",
);

/** `sockaddr_in`. */
function socketAddress([address, port]: Target): Uint8Array {
  const bytes = new Uint8Array(16);
  bytes[endianness() === "LE" ? 0 : 1] = AF_INET;
  bytes.set([port >> 8, port & 255, ...address.split(".").map(Number)], 2);
  return bytes;
}

const setOption = (fd: number, option: number, value: Uint8Array): number =>
  calls.setsockopt(fd, SOL_SOCKET, option, value, value.length);

function bound(type: number, port: number): number {
  const fd = calls.socket(AF_INET, type, 0);
  setOption(fd, SO_REUSEADDR, YES);
  setOption(fd, SO_RCVTIMEO, LOOK_EVERY);
  const address = socketAddress(["0.0.0.0", port]);
  if (calls.bind(fd, address, address.length) < 0) throw new Error(`no port ${port}`);
  return fd;
}

/** Nothing tells this thread when the process that started it was killed: each call ends after a second for a check. */
function forever(step: () => void): void {
  const parent = process.ppid;
  process.stdout.write("ready\n", () => {
    for (;;) {
      step();
      if (process.ppid !== parent) process.exit();
    }
  });
}

function serve(port: number): void {
  const fd = bound(SOCK_STREAM, port);
  if (listen(fd, BACKLOG) < 0) throw new Error(`no port ${port}`);
  const bytes = new Uint8Array(CHUNK_BYTES);
  forever(() => {
    const one = accept(fd, null, null);
    if (one < 0) return;
    // It inherits the listener's limit, and its client may be waiting for a processor.
    setOption(one, SO_RCVTIMEO, NEVER);
    while (recv(one, bytes, bytes.length, 0) > 0);
    closeSync(one);
  });
}

function sink(port: number): void {
  const fd = bound(SOCK_DGRAM, port);
  const bytes = new Uint8Array(2 * DATAGRAM_BYTES);
  forever(() => void recv(fd, bytes, bytes.length, 0));
}

function run({ load, targets, count }: LoopTask): LoopFigures {
  const addresses = targets.map(socketAddress);
  const [first = new Uint8Array(16)] = addresses;
  const before = process.threadCpuUsage();
  const startMs = performance.now();
  const samples: number[] = [];
  let failures = 0;
  const check = (result: number): void => {
    if (result < 0) failures += 1;
  };
  if (load === "connect") {
    for (let n = 0; n < count; n += 1) {
      const address = addresses[n % addresses.length] ?? first;
      const fd = calls.socket(AF_INET, SOCK_STREAM, 0);
      setOption(fd, SO_LINGER, AT_ONCE);
      const connectMs = performance.now();
      check(calls.connect(fd, address, address.length));
      samples.push(1000 * (performance.now() - connectMs));
      closeSync(fd);
    }
  } else {
    const bytes = new Uint8Array(load === "stream" ? CHUNK_BYTES : DATAGRAM_BYTES);
    const fd = calls.socket(AF_INET, load === "stream" ? SOCK_STREAM : SOCK_DGRAM, 0);
    if (load !== "sendto") check(calls.connect(fd, first, first.length));
    for (let n = 0; n < (load === "stream" ? (count * MB) / CHUNK_BYTES : count); n += 1) {
      check(
        load === "sendto" ? sendto(fd, bytes, bytes.length, 0, first, first.length) : send(fd, bytes, bytes.length, 0),
      );
    }
    closeSync(fd);
  }
  const { user, system } = process.threadCpuUsage(before);
  const us = load === "connect" ? median(samples) : (1000 * (performance.now() - startMs)) / count;
  return { us, cpuUs: (user + system) / count, failures };
}

/** All processes share this clock. */
const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6;

/** Nothing else runs in this thread meanwhile. */
function reach(target: Target): ReachFigures {
  const address = socketAddress(target);
  const startMs = monotonicMs();
  for (let attempts = 1; ; attempts += 1) {
    const fd = calls.socket(AF_INET, SOCK_STREAM, 0);
    const isConnected = calls.connect(fd, address, address.length) >= 0;
    const nowMs = monotonicMs();
    if (isConnected) setOption(fd, SO_LINGER, AT_ONCE);
    closeSync(fd);
    if (isConnected) return { connectedMs: nowMs, periodUs: (1000 * (nowMs - startMs)) / attempts };
    if (attempts === 1) process.stdout.write("trying\n");
    if (nowMs - startMs > LONGEST_MS) throw new Error(`${target[0]} is never reached`);
  }
}

if (import.meta.main) {
  const [what, port] = process.argv.slice(2);
  if (what === "serve") serve(Number(port));
  else if (what === "sink") sink(Number(port));
  else await answerLines(what === "reach" ? reach : run);
}
