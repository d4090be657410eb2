import assert from "node:assert/strict";
import { test } from "node:test";
import { CommitCost } from "./commit-cost.ts";

/** Makes commits of this many operations, each as early as allowed. @returns when each began. */
function begun(cost: CommitCost, count: number, operations: number, milliseconds: number, startMs = 0): number[] {
  const times: number[] = [];
  let nowMs = startMs;
  for (let n = 0; n < count; n += 1) {
    nowMs += cost.restMs(nowMs);
    times.push(nowMs);
    nowMs += milliseconds;
    cost.note(operations, milliseconds, nowMs);
  }
  return times;
}

/** The time between the last two. */
function lastPeriod(times: readonly number[]): number {
  return (times.at(-1) ?? 0) - (times.at(-2) ?? 0);
}

test("a few commits may follow each other at once, also after a pause", () => {
  const cost = new CommitCost();
  assert.deepEqual(begun(cost, 4, 2, 3), [0, 3, 6, 9]);
  assert.deepEqual(begun(cost, 4, 2, 3, 1000), [1000, 1003, 1006, 1009]);
});

test("in the long run commits take four times as long as they cost at least", () => {
  assert.equal(lastPeriod(begun(new CommitCost(), 100, 2, 3)), 12);
  assert.equal(lastPeriod(begun(new CommitCost(), 100, 2, 45)), 180);
});

test("between quick commits there are five milliseconds, however many changes are in them", () => {
  for (const operations of [2, 14]) assert.equal(lastPeriod(begun(new CommitCost(), 100, operations, 0.5)), 5.5);
  const cost = new CommitCost();
  begun(cost, 10, 2, 0.5);
  assert.equal(Math.round(lastPeriod(begun(cost, 100, 40, 2, 1000))), 5);
});

test("commits that take long by what is in them follow each other at once", () => {
  const cost = new CommitCost();
  begun(cost, 100, 2, 3);
  assert.equal(lastPeriod(begun(cost, 10, 500, 80, 10_000)), 80);
});

test("what was taken for too slow is forgotten, however large the commits are", () => {
  const cost = new CommitCost();
  begun(cost, 10, 2, 100);
  assert.equal(Math.round(lastPeriod(begun(cost, 400, 500, 40, 100_000))), 40);
});

test("no rest is longer than a second", () => {
  const cost = new CommitCost();
  for (let n = 0; n < 20; n += 1) cost.note(2, 500, n);
  assert.equal(cost.restMs(19), 1000);
});

test("after work that was no commit of changes there is a rest, once", () => {
  const cost = new CommitCost();
  begun(cost, 1, 2, 20);
  cost.spend(5_000, 10_000);
  assert.equal(cost.restMs(10_000), 1000);
  assert.equal(cost.restMs(11_000), 0);
  cost.spend(90, 20_000);
  assert.equal(cost.restMs(20_000), 270);
});
