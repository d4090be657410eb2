import assert from "node:assert/strict";
import { test } from "node:test";
import { sortedKeys } from "./sorted-keys.ts";
import { alwaysYield, neverYield } from "./yielder.ts";

for (const count of [0, 1, 1_999, 2_000, 2_001, 9_999]) {
  test(`${count} keys come in the engine's order, in turns or at once`, async () => {
    const map = new Map(Array.from({ length: count }, (_, index) => [`key-${(index * 7919) % 10_007}`, index]));
    const expected = [...map.keys()].sort();
    assert.deepEqual(await sortedKeys(map, alwaysYield), expected);
    assert.deepEqual(await sortedKeys(map, neverYield), expected);
  });
}

test("an abort ends it", async () => {
  const map = new Map(Array.from({ length: 5_000 }, (_, index) => [String(index), index]));
  await assert.rejects(sortedKeys(map, alwaysYield, AbortSignal.abort(new Error("stop"))), /stop/);
});
