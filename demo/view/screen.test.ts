import assert from "node:assert/strict";
import { test } from "node:test";
import { bodyRows, frameLines, scrollFor } from "./screen.ts";
import { printLine, segment } from "./styled-line.ts";

test("a frame fills the terminal exactly: head and foot stay, the body scrolls", () => {
  const numbered = (count: number, name: string) => Array.from({ length: count }, (_, i) => [segment(`${name}${i}`)]);
  const picture = { head: numbered(2, "head"), body: numbered(30, "row"), foot: numbered(1, "foot") };
  assert.equal(bodyRows(picture, 8), 5);
  const shown = frameLines(picture, 3, { columns: 80, rows: 8 }).map((item) => printLine(item, false));
  assert.deepEqual(shown, ["head0", "head1", "row3", "row4", "row5", "row6", "row7", "foot0"]);
  assert.equal(frameLines(picture, 0, { columns: 80, rows: 2 }).length, 2);
});

test("the foot stays at the end of the terminal when the body is short", () => {
  const picture = { head: [[segment("head")]], body: [[segment("row")]], foot: [[segment("foot")]] };
  const shown = frameLines(picture, 0, { columns: 80, rows: 5 }).map((item) => printLine(item, false));
  assert.deepEqual(shown, ["head", "row", "", "", "foot"]);
});

test("scrolling goes as far as the focus needs, and no further than there is something to see", () => {
  const of = (from: number, to: number, last: number) =>
    scrollFor({ head: [], foot: [], body: Array.from({ length: 30 }, () => []), focus: { from, to } }, last, 10);
  assert.equal(of(0, 5, 0), 0);
  assert.equal(of(8, 13, 0), 3, "down until its last line is in view");
  assert.equal(of(2, 6, 9), 2, "up to its first");
  assert.equal(of(5, 9, 3), 3, "not at all where all of it is in view");
  assert.equal(of(4, 28, 0), 4, "its beginning when it is longer than the terminal");
  assert.equal(of(28, 30, 0), 20, "not past the end");
});
