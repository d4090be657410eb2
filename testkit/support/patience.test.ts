import assert from "node:assert/strict";
import { test } from "node:test";
import { busyWords, PATIENCE, stretched, until, whenLate } from "./patience.ts";

test("a busy machine gets as much longer as it has more to do than processors", () => {
  assert.equal(stretched(1000, 0.3, 2), 1000 * PATIENCE);
  assert.equal(stretched(1000, 16, 2), 8000 * PATIENCE);
  // spawn() only accepts whole milliseconds.
  assert.ok(Number.isInteger(stretched(30_001, 4.07, 2)));
});

test("a machine is busy from twice its processors on", () => {
  assert.equal(busyWords(50.2, 2), "the machine is busy: load 50 on 2 processors");
  assert.equal(busyWords(2, 1), "the machine is busy: load 2 on 1 processor");
  assert.equal(busyWords(3.9, 2), undefined);
});

test("what is waited for is looked at until it holds, and named when it does not", async () => {
  let looks = 0;
  await until("the third look", () => ++looks === 3, { pauseMs: 1 });
  assert.equal(looks, 3);
  const never = until("nothing", () => false, { patienceMs: 20, evidence: () => "the log: empty" });
  await assert.rejects(never, /^Error: waited \d+ ms for nothing; the log: empty$/);
});

test("a limit is longer where the machine has become busy by its end, and means nothing once it is called off", async () => {
  const startMs = performance.now();
  let asked = 0;
  // It is extended twice, however late the timer was.
  const limitNow = () => (++asked < 3 ? performance.now() - startMs + 16 : 0);
  await new Promise<void>((resolve) => void whenLate(0, resolve, limitNow));
  assert.equal(asked, 3);
  assert.ok(performance.now() - startMs >= 30);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  whenLate(
    0,
    () => reject(new Error("was called off")),
    () => 10,
  )();
  whenLate(0, resolve, () => 20);
  await promise;
});
