/** The reader of status-worker.ts: asks for /status until its input ends, and then says how long the answers took. */
import { setTimeout as sleep } from "node:timers/promises";
import { askDaemon } from "../src/cli/inspect-socket-client.ts";
import { quantile } from "./table.ts";

const PAUSE_MS = 10;
const WARM_UP = 30;
const path = process.argv[2] ?? "";
let isOver = false;
process.stdin.resume().on("end", () => {
  isOver = true;
});
for (let n = 0; n < WARM_UP; n += 1) await askDaemon(path, "/status");
process.stdout.write("ready\n");
const times: number[] = [];
while (!isOver) {
  const startMs = performance.now();
  await askDaemon(path, "/status");
  times.push(performance.now() - startMs);
  await sleep(PAUSE_MS);
}
const figures = { p50Ms: quantile(times, 0.5), p99Ms: quantile(times, 0.99), maxMs: Math.max(...times) };
process.stdout.write(`${JSON.stringify({ answers: times.length, ...figures })}\n`);
process.exit();
