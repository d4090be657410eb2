import assert from "node:assert/strict";
import { test } from "node:test";
import { stripVTControlCharacters } from "node:util";
import { cutLine, padLine, printLine, segment, widthOf } from "./styled-line.ts";

const line = [segment("✓ ", "green"), segment("twelve chars")];

test("a line is printed with its styles, or plainly", () => {
  assert.equal(printLine(line, false), "✓ twelve chars");
  assert.notEqual(printLine(line, true), "✓ twelve chars");
  assert.equal(stripVTControlCharacters(printLine(line, true)), "✓ twelve chars");
});

test("padding and cutting count what is seen, not the styles", () => {
  assert.equal(widthOf(line), 14);
  assert.equal(widthOf(padLine(line, 20)), 20);
  assert.equal(padLine(line, 3), line);
  assert.equal(printLine(cutLine(line, 8), false), "✓ twelv…");
  assert.equal(cutLine(line, 14), line);
});

test("control characters of a manifest do not reach the terminal", () => {
  assert.equal(segment("a\x1b[2Jb\nc").text, "a [2Jb c");
});
