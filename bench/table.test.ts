import assert from "node:assert/strict";
import { test } from "node:test";
import { type Figures, figuresTable, judgeFigures, judgeGrowth, median, middleOf, Notes, quantile } from "./table.ts";

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

const figures = (value: number, wanted?: number): Figures => {
  const notes = new Notes();
  notes.add("a change", value, wanted);
  return notes.figures;
};

test("what exceeds its target misses it, of samples the middle", () => {
  const notes = new Notes();
  notes.add("load", 10, 10);
  notes.add("  answers", { count: 9, p50: 1.5, p99: 900, worst: 900 }, 2);
  notes.add("memory", 10.5, 10);
  notes.add("told", "not in 5 s", 3);
  notes.add("not measured", undefined, 1);
  assert.deepEqual(judgeFigures({ "10 services": notes.figures }), [
    { passed: true, text: "10 services: load: 10, at most 10 wanted" },
    { passed: true, text: "10 services: answers: 1.50, at most 2 wanted" },
    { passed: false, text: "10 services: memory: 10.5, at most 10 wanted" },
  ]);
  assert.throws(() => notes.add("load", 1), /load has been measured/);
});

test("a figure may cost so much more in the largest size than in the cheapest other", () => {
  const passed = (...values: readonly number[]) => {
    const columns = Object.fromEntries(values.map((value, at) => [`${10 ** at} services`, figures(value)]));
    return judgeGrowth("a change", columns, 1.5).map((verdict) => verdict.passed);
  };
  assert.deepEqual([passed(1.1, 1, 1.5), passed(1.1, 1, 1.6), passed(1)], [[true], [false], []]);
});

test("of several runs the middle of each figure counts, and what one run alone has", () => {
  const once = { ...figures(900, 500), planning: { value: 3 } };
  assert.deepEqual(middleOf([once, figures(200, 500), figures(210, 500)]), {
    "a change": { value: 210, wanted: 500 },
    planning: { value: 3 },
  });
});

test("a table has a column for each result, or a row where they are many", () => {
  const few = { "10 services": figures(0.0123), "20 services": { more: { value: "cut off" } } };
  assert.deepEqual(figuresTable("ms", few).split("\n").slice(2), [
    "a change       0.0123            –",
    "more                –      cut off",
  ]);
  const many = Object.fromEntries(Array.from({ length: 9 }, (_, at) => [`${at}`, figures(at)]));
  assert.equal(figuresTable("services", many).split("\n").length, 11);
});
