import assert from "node:assert/strict";
import { test } from "node:test";
import { restAfterLook } from "./look-rest.ts";

test("a look that takes long is rare, and yet comes once a period as long as that is at most a fifth of the time", () => {
  const PERIOD_MS = 1000;
  const rests = [10, 100, 240, 300, 5000].map((elapsedMs) => restAfterLook(elapsedMs, PERIOD_MS));
  assert.deepEqual(rests, [190, 1000, 1000, 1200, 20_000]);
});
