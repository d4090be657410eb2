import assert from "node:assert/strict";
import { test } from "node:test";
import { type InnerResult, parseResultLine, resultLine } from "./inner-result.ts";

test("a result survives on its line, with any text", () => {
  const result: InnerResult = {
    file: "src/a.test.ts",
    title: 'suite › it\'s "quoted"',
    outcome: "failed",
    reason: "Error: two\nlines",
    durationMs: 1.5,
  };
  const lines = `noise without an end${resultLine(result)}more`.split("\n");
  assert.deepEqual(
    lines.map(parseResultLine).filter((found) => found !== undefined),
    [result],
  );
});
