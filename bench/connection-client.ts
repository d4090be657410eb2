/**
 * Reads cluster IPs, one on each line; begins a connection to its port 80 every {@link EVERY_MS}, or every hundredth of the time that
 * it has tried, until one succeeds, and writes when that was, in nanoseconds of `process.hrtime`.
 */
import { connect, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const EVERY_MS = 2;

async function firstConnection(host: string): Promise<bigint> {
  const attempts = new Set<Socket>();
  let connectedNs: bigint | undefined;
  const startMs = performance.now();
  while (connectedNs === undefined) {
    const socket = connect({ host, port: 80 });
    attempts.add(socket);
    socket.on("error", () => attempts.delete(socket));
    socket.on("connect", () => {
      connectedNs ??= process.hrtime.bigint();
    });
    await sleep(Math.max(EVERY_MS, (performance.now() - startMs) / 100));
  }
  for (const socket of attempts) socket.destroy();
  return connectedNs;
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${await firstConnection(line)}\n`);
}
