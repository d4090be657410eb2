import assert from "node:assert/strict";
import { test } from "node:test";
import { nodeKernel } from "./node-kernel.ts";

test("where addresses are not watched, a watch ends with its signal and not before", async () => {
  const { addressWatch } = await nodeKernel("win32");
  const stop = new AbortController();
  let hasEnded = false;
  const watching = addressWatch
    .watch(() => {}, stop.signal)
    .then(() => {
      hasEnded = true;
    });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(hasEnded, false);
  stop.abort();
  await watching;
  await addressWatch.watch(() => {}, AbortSignal.abort());
});
