/** How long an HTTP server in this process takes to answer while it has something else to do. */
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { signalChild } from "../src/kernel/child-process.ts";
import { ownCpuMs } from "./memory.ts";

const POLLER = fileURLToPath(new URL("./health-poller.ts", import.meta.url));

export interface HealthLatency<T> {
  readonly result: T;
  readonly maxMs: number;
  readonly requests: number;
  /** The longest that this thread worked at a stretch, in processor time: what does not depend on other processes. */
  readonly longestTurnMs: number;
}

/** How often the thread's processor time is looked at. */
const LOOK_MS = 1;

/** Runs the work while another process asks for `/healthz` again and again. */
export async function withHealthLatency<T>(work: () => Promise<T>): Promise<HealthLatency<T>> {
  const server = createServer((_request, response) => response.end("ok"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // listening on TCP
  const poller = spawn(process.execPath, [POLLER, String(port)], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: poller.stdout })[Symbol.asyncIterator]();
  try {
    await lines.next();
    let longestTurnMs = 0;
    let lastMs = ownCpuMs();
    const looking = setInterval(() => {
      const nowMs = ownCpuMs();
      longestTurnMs = Math.max(longestTurnMs, nowMs - lastMs);
      lastMs = nowMs;
    }, LOOK_MS);
    const result = await work().finally(() => clearInterval(looking));
    poller.stdin.end();
    const { maxMs, requests } = JSON.parse((await lines.next()).value ?? "");
    return { result, maxMs, requests, longestTurnMs };
  } finally {
    signalChild(poller);
    server.closeAllConnections();
    server.close();
  }
}
