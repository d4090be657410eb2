import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../../../testkit/support/fast-check.ts";
import { JsonLines } from "./json.ts";

function split(text: string, size: number, maxLineBytes = 1_000_000) {
  const lines: { readonly text: string; readonly isWhole: boolean; readonly bytes: number }[] = [];
  const splitter = new JsonLines(maxLineBytes, ({ content, isWhole, bytes }) =>
    lines.push({ text: content.toString(), isWhole, bytes }),
  );
  const all = Buffer.from(text, "utf8");
  for (let at = 0; at < all.length; at += size) splitter.push(all.subarray(at, at + size));
  return lines;
}

test("wherever the chunks end, each line comes out once and whole", () => {
  fc.assert(
    fc.property(fc.array(fc.string({ unit: "grapheme" })), fc.integer({ min: 1, max: 50 }), (texts, size) => {
      const wanted = texts.map((text) => JSON.stringify(text));
      const lines = split(wanted.map((line) => `${line}\n`).join(""), size);
      assert.deepEqual(
        lines.map(({ text }) => text),
        wanted,
      );
    }),
  );
});

test("empty lines are passed over, and a line without an end is none", () => {
  const lines = split("\n\n{}\n\n{", 2);
  assert.deepEqual(
    lines.map(({ text }) => text),
    ["{}"],
  );
});

test("of a line that is too large only the beginning is kept", () => {
  for (const size of [7, 100_000]) {
    const lines = split(`{}\n${"x".repeat(40_000)}\n{}\n`, size, 1_000);
    assert.deepEqual(
      lines.map(({ isWhole, bytes }) => [isWhole, bytes]),
      [
        [true, 2],
        [false, 40_000],
        [true, 2],
      ],
    );
    assert.ok((lines[1]?.text.length ?? 0) <= 16_384);
  }
});
