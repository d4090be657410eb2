import assert from "node:assert/strict";
import { test } from "node:test";
import { smallMap } from "./small-map.ts";

for (const entries of [
  [],
  [["a", 1]],
  [
    ["a", 1],
    ["b", 2],
  ],
] as const satisfies readonly (readonly [string, number])[][]) {
  test(`a small map of ${entries.length} entries answers as the engine's does`, () => {
    const small = smallMap<number>(entries);
    const map = new Map<string, number>(entries);
    const visited: unknown[] = [];
    small.forEach((...given) => void visited.push(given.slice(0, 2)));
    assert.deepEqual(
      visited,
      [...map].map(([key, value]) => [value, key]),
    );
    assert.equal(small.size, map.size);
    assert.deepEqual(
      [[...small], [...small.keys()], [...small.values()], [...small.entries()]],
      [[...map], [...map.keys()], [...map.values()], [...map]],
    );
    for (const key of ["a", "b", "c"]) assert.deepEqual([small.get(key), small.has(key)], [map.get(key), map.has(key)]);
  });
}
