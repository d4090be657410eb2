/**
 * Every fault of upstream in docs/reference/windows-practice.md §9, and every row of what operators report in its §8, is named by a test of
 * the Windows modes: `§9.16`, and one of the issues of a row.
 */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CHECKOUT } from "./markdown.ts";

const PAGE = readFileSync(join(CHECKOUT, "docs/reference/windows-practice.md"), "utf8");
const TESTS = globSync(["src/modes/kernelspace/*.test.ts", "src/modes/kernelspace/hcn/**/*{.test,-contract}.ts"], {
  cwd: CHECKOUT,
})
  .map((path) => readFileSync(join(CHECKOUT, path), "utf8"))
  .join("\n");

function section(heading: string): string {
  const [, rest = ""] = PAGE.split(`\n## ${heading}\n`);
  return rest.split(/\n##+ /)[0] ?? "";
}

test("each fault of §9 has a test that names it", () => {
  const numbers = [...section("9. Faults of upstream").matchAll(/^(\d+)\. /gm)].map(([, number = ""]) => number);
  assert.ok(numbers.length >= 24);
  const isNamed = (number: string): boolean => new RegExp(`§9\\.${number}(?!\\d)`).test(TESTS);
  assert.deepEqual(
    numbers.filter((number) => !isNamed(number)),
    [],
  );
});

test("each row of §8 has a test that names one of its issues", () => {
  const rows = [...section("8. What operators report").matchAll(/^\| (?!Complaint)([^|-][^|]*) \|([^|]*)\|/gm)];
  assert.ok(rows.length >= 19);
  const issues = (references: string): string[] => [...references.matchAll(/#\d+/g)].map(([issue]) => issue);
  const isNamed = (issue: string): boolean => new RegExp(`${issue}(?!\\d)`).test(TESTS);
  const unnamed = rows.filter(([, , references = ""]) => !issues(references).some(isNamed));
  assert.deepEqual(
    unnamed.map(([, complaint]) => complaint),
    [],
  );
});
