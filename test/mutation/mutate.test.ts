import assert from "node:assert/strict";
import { test } from "node:test";
import { mutantsOf } from "./mutate.ts";

const CASES: readonly (readonly [line: string, mutants: readonly string[]])[] = [
  ["  if (a === b) return;", ["  if (a !== b) return;", "  if (!a === b) return;"]],
  ["  return a && !b;", ["  return a || !b;"]],
  ["  return !b;", ["  return b;"]],
  ["  this.#kept.delete(key);", [""]],
  ["  const name = `a && b`; // a && b", []],
  [
    "  for (const x of list.toReversed()) f(x, 3);",
    ["  for (const x of list) f(x, 3);", "  for (const x of list.toReversed()) f(x, 4);"],
  ],
  ['import { a } from "./a.ts";', []],
  ["  /** true or false */", []],
];

for (const [line, expected] of CASES) {
  test(`mutants of ${JSON.stringify(line)}`, () => {
    assert.deepEqual(
      mutantsOf(line).map((mutant) => mutant.line),
      expected,
    );
  });
}
