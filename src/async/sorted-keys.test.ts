import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { sortedKeys } from "./sorted-keys.ts";
import { turnPolicy } from "./turns.ts";

const { isDue } = turnPolicy;
afterEach(() => {
  turnPolicy.isDue = isDue;
});

for (const count of [0, 1, 1_999, 2_000, 2_001, 9_999]) {
  test(`${count} keys come in the engine's order, in turns or at once`, async () => {
    const map = new Map(Array.from({ length: count }, (_, index) => [`key-${(index * 7919) % 10_007}`, index]));
    const expected = [...map.keys()].sort();
    for (const isAlwaysDue of [true, false]) {
      turnPolicy.isDue = () => isAlwaysDue;
      assert.deepEqual(await sortedKeys(map), expected);
    }
  });
}

test("an abort ends it", async () => {
  const map = new Map(Array.from({ length: 5_000 }, (_, index) => [String(index), index]));
  turnPolicy.isDue = () => true;
  await assert.rejects(sortedKeys(map, AbortSignal.abort(new Error("stop"))), /stop/);
});
