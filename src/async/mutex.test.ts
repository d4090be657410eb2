import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Mutex } from "./mutex.ts";

test("operations run one at a time in the order of asking, and a failed one stops none", async () => {
  const mutex = new Mutex();
  const events: string[] = [];
  const { promise: gate, resolve: open } = Promise.withResolvers<void>();
  const first = mutex.run(async () => {
    events.push("first begins");
    await gate;
    events.push("first fails");
    throw new Error("no");
  });
  const second = mutex.run(async () => {
    events.push("second");
    return 2;
  });
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(events, ["first begins"]);
  open();
  await assert.rejects(first, /no/);
  assert.equal(await second, 2);
  assert.deepEqual(events, ["first begins", "first fails", "second"]);
});

test("an abort before its turn rejects without running it", async () => {
  const mutex = new Mutex();
  const { promise: gate, resolve: open } = Promise.withResolvers<void>();
  const first = mutex.run(() => gate);
  const stop = new AbortController();
  let ran = false;
  const second = mutex.run(async () => {
    ran = true;
  }, stop.signal);
  stop.abort(new Error("stopped"));
  open();
  await first;
  await assert.rejects(second, /stopped/);
  assert.equal(ran, false);
});

test("a result is not kept", async () => {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc");
  const mutex = new Mutex();
  const run = async () => new WeakRef(await mutex.run(async () => ({})));
  const result = await run();
  await new Promise((resolve) => setImmediate(resolve));
  gc();
  assert.equal(result.deref(), undefined);
  await mutex.run(async () => {});
});
