import assert from "node:assert/strict";
import { test } from "node:test";
import { PATIENCE, stretched, until } from "./patience.ts";

test("a busy machine gets as much longer as it has more to do than processors", () => {
  assert.equal(stretched(1000, 0.3, 2), 1000 * PATIENCE);
  assert.equal(stretched(1000, 16, 2), 8000 * PATIENCE);
  // spawn() takes whole milliseconds only.
  assert.ok(Number.isInteger(stretched(30_001, 4.07, 2)));
});

test("what is waited for is looked at until it holds, and named when it does not", async () => {
  let looks = 0;
  await until("the third look", () => ++looks === 3, { pauseMs: 1 });
  assert.equal(looks, 3);
  const never = until("nothing", () => false, { exactLimitMs: 20, evidence: () => "the log: empty" });
  await assert.rejects(never, /^Error: waited \d+ ms for nothing; the log: empty$/);
});
