/**
 * The ends of what pods send each other, as fast as system calls allow. `serve PORT` takes TCP and reads what comes, `sink PORT` reads
 * datagrams, both until they are ended. `client` answers each line of standard input, a {@link PodTask}, with {@link PodFigures}.
 */
import { closeSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { libc, openLibrary } from "../src/kernel/netlink/libc.ts";
import type { PodFigures, PodTask } from "./pods-figures.ts";
import { socketAddress } from "./socket-loop-address.ts";
import { median } from "./table.ts";

const AF_INET = 2;
const [SOCK_STREAM, SOCK_DGRAM] = [1, 2];
const SOL_SOCKET = 1;
const [SO_REUSEADDR, SO_LINGER, SO_RCVTIMEO] = [2, 13, 20];
const BACKLOG = 4096;
const AT_ONCE = new Uint8Array(Int32Array.of(1, 0).buffer);
const LOOK_EVERY = new Uint8Array(BigInt64Array.of(1n, 0n).buffer);
const NEVER = new Uint8Array(16);
const YES = new Uint8Array(Int32Array.of(1).buffer);
const DATAGRAM_BYTES = 100;
const CHUNK_BYTES = 64 * 1024;
const MB = 1_000_000;

const calls = libc();
const library = openLibrary(createRequire(import.meta.url)("koffi"));
const listen = library.func("int listen(int fd, int backlog)");
const accept = library.func("int accept(int fd, void *address, void *length)");
const recv = library.func("long recv(int fd, uint8_t *bytes, size_t length, int flags)");
const send = library.func("long send(int fd, uint8_t *bytes, size_t length, int flags)");
const sendto = library.func(
  "long sendto(int fd, uint8_t *bytes, size_t length, int flags, uint8_t *address, uint32_t addressLength)",
);

function bound(type: number, port: number): number {
  const fd = calls.socket(AF_INET, type, 0);
  calls.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, YES, YES.length);
  calls.setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, LOOK_EVERY, LOOK_EVERY.length);
  const address = socketAddress("0.0.0.0", port);
  if (calls.bind(fd, address, address.length) < 0) throw new Error(`no port ${port}`);
  return fd;
}

/** Nothing tells this thread when the process that wants it was killed: each call ends after a second, and it looks. */
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
    // It has the limit of the one that listens, and its client may wait for a processor.
    calls.setsockopt(one, SOL_SOCKET, SO_RCVTIMEO, NEVER, NEVER.length);
    while (recv(one, bytes, bytes.length, 0) > 0);
    closeSync(one);
  });
}

function sink(port: number): void {
  const fd = bound(SOCK_DGRAM, port);
  const bytes = new Uint8Array(2 * DATAGRAM_BYTES);
  forever(() => void recv(fd, bytes, bytes.length, 0));
}

function run({ load, targets, count }: PodTask): PodFigures {
  const addresses = targets.map(([address, port]) => socketAddress(address, port));
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
      calls.setsockopt(fd, SOL_SOCKET, SO_LINGER, AT_ONCE, AT_ONCE.length);
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

const [what, port] = process.argv.slice(2);
if (what === "serve") serve(Number(port));
else if (what === "sink") sink(Number(port));
else {
  process.stdout.write("ready\n");
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(run(JSON.parse(line)))}\n`);
  }
}
