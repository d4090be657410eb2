import assert from "node:assert/strict";
import { test } from "node:test";
import { stripVTControlCharacters } from "node:util";
import { bodyRows, frameLines } from "./screen.ts";
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

test("a frame fills the terminal exactly: head and foot stay, the body scrolls", () => {
  const numbered = (count: number, name: string) => Array.from({ length: count }, (_, i) => [segment(`${name}${i}`)]);
  const picture = { head: numbered(2, "head"), body: numbered(30, "row"), foot: numbered(1, "foot") };
  assert.equal(bodyRows(picture, 8), 5);
  const shown = frameLines(picture, 3, 80, 8).map((item) => printLine(item, false));
  assert.deepEqual(shown, ["head0", "head1", "row3", "row4", "row5", "row6", "row7", "foot0"]);
  assert.equal(frameLines(picture, 0, 80, 2).length, 2);
});
