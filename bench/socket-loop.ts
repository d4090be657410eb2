/**
 * Connections as fast as system calls allow, without Node's sockets around them. `serve PORT` accepts and closes until it is ended. `connect`
 * answers each line of standard input, a {@link ConnectTask} as JSON, with {@link ConnectFigures} as one line of JSON.
 */
import { closeSync } from "node:fs";
import { createRequire } from "node:module";
import { endianness } from "node:os";
import { createInterface } from "node:readline";
import { libc, openLibrary } from "../src/kernel/netlink/libc.ts";
import { quantile } from "./statistics.ts";

export interface ConnectTask {
  /** IPv4 addresses and ports; each in its turn. */
  readonly targets: readonly (readonly [address: string, port: number])[];
  readonly count: number;
}

export interface ConnectFigures {
  readonly p50Us: number;
  readonly failures: number;
}

const AF_INET = 2;
const SOCK_STREAM = 1;
const SOL_SOCKET = 1;
const SO_REUSEADDR = 2;
const SO_LINGER = 13;
const BACKLOG = 4096;

/** Closed with a reset: nothing waits for its end. */
const AT_ONCE = new Uint8Array(Int32Array.of(1, 0).buffer);
const YES = new Uint8Array(Int32Array.of(1).buffer);

function socketAddress(address: string, port: number): Uint8Array {
  const bytes = new Uint8Array(16);
  bytes[endianness() === "LE" ? 0 : 1] = AF_INET;
  bytes.set([port >> 8, port & 255, ...address.split(".").map(Number)], 2);
  return bytes;
}

function serve(port: number): void {
  const library = openLibrary(createRequire(import.meta.url)("koffi"));
  const listen = library.func("int listen(int fd, int backlog)");
  const accept = library.func("int accept(int fd, void *address, void *length)");
  const calls = libc();
  const fd = calls.socket(AF_INET, SOCK_STREAM, 0);
  calls.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, YES, YES.length);
  const address = socketAddress("0.0.0.0", port);
  if (calls.bind(fd, address, address.length) < 0 || listen(fd, BACKLOG) < 0) throw new Error(`no port ${port}`);
  process.stdout.write("ready\n", () => {
    for (;;) {
      const one = accept(fd, null, null);
      if (one >= 0) closeSync(one);
    }
  });
}

function connectInTurn({ targets, count }: ConnectTask): ConnectFigures {
  const calls = libc();
  const addresses = targets.map(([address, port]) => socketAddress(address, port));
  const samples: number[] = [];
  let failures = 0;
  for (let n = 0; n < count; n += 1) {
    const address = addresses[n % addresses.length] ?? new Uint8Array(16);
    const fd = calls.socket(AF_INET, SOCK_STREAM, 0);
    calls.setsockopt(fd, SOL_SOCKET, SO_LINGER, AT_ONCE, AT_ONCE.length);
    const startMs = performance.now();
    const result = calls.connect(fd, address, address.length);
    samples.push(1000 * (performance.now() - startMs));
    if (result < 0) failures += 1;
    closeSync(fd);
  }
  return { p50Us: quantile(samples, 0.5), failures };
}

const [what, port] = process.argv.slice(2);
if (what === "serve") serve(Number(port));
else {
  process.stdout.write("ready\n");
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(connectInTurn(JSON.parse(line)))}\n`);
  }
}
