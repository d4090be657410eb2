import assert from "node:assert/strict";
import { test } from "node:test";
import { printLine, segment, widthOf } from "./styled-line.ts";
import { wrapLine } from "./wrap.ts";

const wrapped = (text: string, width: number, indent = 2) =>
  wrapLine([segment(text)], width, indent).map((line) => printLine(line, false));

test("lines break between words, and the following ones are indented", () => {
  assert.deepEqual(wrapped("one two three four", 10), ["one two", "  three", "  four"]);
  assert.deepEqual(wrapped("short", 10), ["short"]);
  assert.deepEqual(wrapped("", 10), [""]);
});

test("a word that is longer than a line is cut, and nothing gets lost", () => {
  assert.deepEqual(wrapped("abcdefghijklmnop", 8), ["abcdefgh", "  ijklmn", "  op"]);
  assert.deepEqual(wrapped("see abcdefghijklmnop", 8, 0).join(""), "seeabcdefghijklmnop");
});

test("styles stay with their words, and no line is wider than asked", () => {
  const lines = wrapLine([segment("red words ", "red"), segment("and more of them in blue", "cyan")], 12, 3);
  assert.ok(lines.every((line) => widthOf(line) <= 12));
  const words = lines.flat().filter(({ text }) => text.trim() !== "");
  assert.deepEqual(
    words.filter(({ styles }) => styles.includes("red")).map(({ text }) => text),
    ["red", "words"],
  );
});
