import assert from "node:assert/strict";
import { test } from "node:test";
import { median, quantile } from "./table.ts";

test("quantiles of sorted and unsorted samples lie between neighbours", () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 2, 3]), 2.5);
  assert.equal(quantile([10, 20, 30, 40, 50], 0.9), 46);
  assert.equal(quantile([7], 0.9), 7);
  assert.equal(quantile([1, 2], 2), 2);
});

test("no samples give 0", () => {
  assert.equal(median([]), 0);
});
