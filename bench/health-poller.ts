/** The other side of health-latency.ts: asks until its input ends, and then says how long the slowest answer took. */
import { Agent, get } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const PAUSE_MS = 2;
const WARM_UP = 50;
const port = Number(process.argv[2]);
const agent = new Agent({ keepAlive: true });
let isOver = false;

function ask(): Promise<void> {
  return new Promise((resolve, reject) => {
    get({ port, host: "127.0.0.1", path: "/healthz", agent }, (response) => {
      response.resume().on("end", resolve);
    }).on("error", reject);
  });
}

process.stdin.resume().on("end", () => {
  isOver = true;
});
// Neither the first connection nor code that is run for the first time is part of it.
for (let n = 0; n < WARM_UP; n += 1) await ask();
process.stdout.write("ready\n");
let maxMs = 0;
let requests = 0;
while (!isOver) {
  const startMs = performance.now();
  await ask();
  maxMs = Math.max(maxMs, performance.now() - startMs);
  requests += 1;
  await sleep(PAUSE_MS);
}
process.stdout.write(`${JSON.stringify({ maxMs, requests })}\n`);
process.exit();
