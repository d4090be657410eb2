import assert from "node:assert/strict";
import { test } from "node:test";
import { PATIENCE, stretched } from "./patience.ts";

test("a busy machine gets as much longer as it has more to do than processors", () => {
  assert.equal(stretched(1000, 0.3, 2), 1000 * PATIENCE);
  assert.equal(stretched(1000, 16, 2), 8000 * PATIENCE);
  // spawn() takes whole milliseconds only.
  assert.ok(Number.isInteger(stretched(30_001, 4.07, 2)));
});
