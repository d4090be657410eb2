import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "./patience.ts";
import { BusyClock, waitedForProcessorMs } from "./processor-wait.ts";

const LOOP = "for (;;);";
const skip = !existsSync("/proc/self/schedstat") && "not on this machine: /proc/PID/schedstat";

test("a clock stands still while its process waits for a processor, and goes on while it sleeps", {
  skip,
}, async (t) => {
  // Two of them on one processor: each waits half the time.
  const [one, other] = [1, 2].map(() => spawn("taskset", ["--cpu-list", "0", process.execPath, "-e", LOOP]));
  const sleeping = spawn("sleep", ["60"]);
  t.after(() => {
    for (const child of [one, other, sleeping]) child?.kill("SIGKILL");
  });
  const pid = one?.pid ?? 0;
  await until("it to wait", () => waitedForProcessorMs(pid) > 50);
  const [busy, idle] = [new BusyClock(pid), new BusyClock(sleeping.pid ?? 0)];
  const startMs = performance.now();
  await sleep(600);
  const tookMs = performance.now() - startMs;
  assert.ok(busy.elapsedMs() < tookMs * 0.8, `${busy.elapsedMs()} of ${tookMs} ms`);
  assert.ok(idle.elapsedMs() > tookMs * 0.9, `${idle.elapsedMs()} of ${tookMs} ms`);
});

test("a process that is gone has waited as long as it was seen to", () => {
  assert.equal(waitedForProcessorMs(2 ** 22 + 1), 0);
});
