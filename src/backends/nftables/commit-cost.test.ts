import assert from "node:assert/strict";
import { test } from "node:test";
import { CommitCost } from "./commit-cost.ts";

/** The rest after these commits, each `[operations, milliseconds]`. */
function restAfter(...commits: readonly (readonly [number, number])[]): number {
  const cost = new CommitCost();
  for (const [operations, milliseconds] of commits) cost.note(operations, milliseconds);
  return cost.restMs;
}

test("without a small commit nothing is known, and there is no rest", () => {
  assert.equal(restAfter(), 0);
  assert.equal(restAfter([10_000, 500]), 0);
});

test("rests follow what a small commit costs, and not what large ones cost", () => {
  assert.equal(restAfter([2, 3]), 9);
  assert.equal(restAfter([2, 3], [500, 80], [1000, 150]), 9);
});

test("one slow commit changes little, many change it all, both ways", () => {
  const quick: [number, number][] = Array.from({ length: 50 }, () => [2, 1]);
  const slow: [number, number][] = Array.from({ length: 50 }, () => [2, 10]);
  assert.ok(restAfter(...quick, [2, 10]) < 9);
  assert.ok(Math.abs(restAfter(...quick, ...slow) - 30) < 0.1);
  assert.ok(Math.abs(restAfter(...slow, ...quick) - 3) < 0.1);
});

test("a large commit that was quicker than small ones shows that they need not be so slow", () => {
  assert.equal(restAfter([2, 40], [500, 5]), 15);
});

test("no rest is longer than upstream's", () => {
  assert.equal(restAfter([2, 5000]), 1000);
});
