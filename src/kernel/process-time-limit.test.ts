/** The time limit also covers processes that a tool has started. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { execProcess } from "./process.ts";

test("a tool that has started another one is over when its time is", async () => {
  const sinceMs = performance.now();
  const { status, stderr } = await execProcess("sh", ["-c", "sleep 20; true"], { timeoutMs: 200 });
  assert.equal(status, -1);
  assert.match(stderr, /killed after 200 ms/);
  const tookMs = performance.now() - sinceMs;
  assert.ok(tookMs < 10_000, `${Math.round(tookMs)} ms`);
});
