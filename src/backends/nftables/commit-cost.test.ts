import assert from "node:assert/strict";
import { test } from "node:test";
import { CommitCost } from "./commit-cost.ts";

type Commit = readonly [operations: number, milliseconds: number];

/** The rest after these commits. */
function restAfter(...commits: readonly Commit[]): number {
  const cost = new CommitCost();
  for (const [operations, milliseconds] of commits) cost.note(operations, milliseconds);
  return cost.restMs;
}

function times(count: number, commit: Commit): Commit[] {
  return Array.from({ length: count }, () => commit);
}

test("quick commits begin six milliseconds after each other", () => {
  assert.equal(restAfter(), 6);
  assert.equal(restAfter([2, 0.5]), 5.5);
});

test("slower ones begin after four times what they take", () => {
  assert.equal(restAfter([2, 3]), 9);
  assert.equal(restAfter([2, 45]), 135);
});

test("a commit that took long by what was in it is followed by the next one at once", () => {
  assert.equal(restAfter([2, 3], [500, 80]), 0);
});

test("one slow commit changes little, many change it all, both ways", () => {
  assert.ok(restAfter(...times(50, [2, 5]), [2, 10], [2, 5]) < 20);
  assert.ok(Math.abs(restAfter(...times(50, [2, 5]), ...times(50, [2, 10])) - 30) < 0.1);
  assert.ok(Math.abs(restAfter(...times(50, [2, 10]), ...times(50, [2, 5])) - 15) < 0.1);
});

test("what was taken for too slow is forgotten, however large the commits are", () => {
  assert.ok(restAfter([2, 100], ...times(200, [500, 10])) < 1);
});

test("large commits alone say nothing of what small ones cost", () => {
  assert.equal(restAfter([10_000, 5]), 1);
});

test("commits begin at least once a second while there is something to do", () => {
  assert.equal(restAfter([2, 400]), 600);
});
