/**
 * Connections as fast as system calls allow, without Node's sockets around them. `serve PORT` accepts and closes until it is ended. `connect`
 * answers each line of standard input, a {@link ConnectTask} as JSON, with {@link ConnectFigures} as one line of JSON. `reach` answers each,
 * an address and a port, with a line when the first connection has failed, and {@link ReachFigures} when one has succeeded.
 */
import { closeSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { libc, openLibrary } from "../src/kernel/netlink/libc.ts";
import { socketAddress } from "./socket-loop-address.ts";
import { quantile } from "./table.ts";

export interface ConnectTask {
  /** IPv4 addresses and ports; each in its turn. */
  readonly targets: readonly (readonly [address: string, port: number])[];
  readonly count: number;
}

export interface ConnectFigures {
  readonly p50Us: number;
  /** Processor time of this thread for each, the socket made and closed. What the kernel does for it at once is in it. */
  readonly cpuUs: number;
  readonly failures: number;
}

export interface ReachFigures {
  /** When it was connected, by the monotonic clock. */
  readonly connectedMs: number;
  /** How long one attempt took, from its beginning to that of the next. */
  readonly periodUs: number;
}

const AF_INET = 2;
const SOCK_STREAM = 1;
const SOL_SOCKET = 1;
const SO_REUSEADDR = 2;
const SO_LINGER = 13;
const SO_RCVTIMEO = 20;
const BACKLOG = 4096;
const LONGEST_MS = 10_000;

/** Closed with a reset: nothing waits for its end. */
const AT_ONCE = new Uint8Array(Int32Array.of(1, 0).buffer);
/** Seconds and microseconds. */
const LOOK_EVERY = new Uint8Array(BigInt64Array.of(1n, 0n).buffer);
const YES = new Uint8Array(Int32Array.of(1).buffer);

function serve(port: number): void {
  const library = openLibrary(createRequire(import.meta.url)("koffi"));
  const listen = library.func("int listen(int fd, int backlog)");
  const accept = library.func("int accept(int fd, void *address, void *length)");
  const calls = libc();
  const fd = calls.socket(AF_INET, SOCK_STREAM, 0);
  calls.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, YES, YES.length);
  // Nothing tells this thread when the process that wants it was killed: it looks.
  const parent = process.ppid;
  calls.setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, LOOK_EVERY, LOOK_EVERY.length);
  const address = socketAddress("0.0.0.0", port);
  if (calls.bind(fd, address, address.length) < 0 || listen(fd, BACKLOG) < 0) throw new Error(`no port ${port}`);
  process.stdout.write("ready\n", () => {
    for (;;) {
      const one = accept(fd, null, null);
      if (one >= 0) closeSync(one);
      else if (process.ppid !== parent) process.exit();
    }
  });
}

function connectInTurn({ targets, count }: ConnectTask): ConnectFigures {
  const calls = libc();
  const addresses = targets.map(([address, port]) => socketAddress(address, port));
  const samples: number[] = [];
  let failures = 0;
  const before = process.threadCpuUsage();
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
  const { user, system } = process.threadCpuUsage(before);
  return { p50Us: quantile(samples, 0.5), cpuUs: (user + system) / count, failures };
}

/** Nothing else runs in this thread meanwhile. */
function reach([host, port]: ConnectTask["targets"][number]): ReachFigures {
  const calls = libc();
  const address = socketAddress(host, port);
  const startMs = monotonicMs();
  for (let attempts = 1; ; attempts += 1) {
    const fd = calls.socket(AF_INET, SOCK_STREAM, 0);
    const isConnected = calls.connect(fd, address, address.length) >= 0;
    const nowMs = monotonicMs();
    if (isConnected) calls.setsockopt(fd, SOL_SOCKET, SO_LINGER, AT_ONCE, AT_ONCE.length);
    closeSync(fd);
    if (isConnected) return { connectedMs: nowMs, periodUs: (1000 * (nowMs - startMs)) / attempts };
    if (attempts === 1) process.stdout.write("trying\n");
    if (nowMs - startMs > LONGEST_MS) throw new Error(`${host} is never reached`);
  }
}

/** Processes have it in common. */
const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6;

const [what, port] = process.argv.slice(2);
if (what === "serve") serve(Number(port));
else {
  process.stdout.write("ready\n");
  for await (const line of createInterface({ input: process.stdin })) {
    const task = JSON.parse(line);
    process.stdout.write(`${JSON.stringify(what === "reach" ? reach(task) : connectInTurn(task))}\n`);
  }
}
