import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../../../testkit/support/fast-check.ts";
import { JsonLines } from "./json.ts";
import { FormatError, MAX_OBJECT_BYTES } from "./pieces.ts";

function split(text: string, size: number): readonly string[] {
  const lines: string[] = [];
  const splitter = new JsonLines((line) => lines.push(line.toString()));
  const all = Buffer.from(text, "utf8");
  for (let at = 0; at < all.length; at += size) splitter.push(all.subarray(at, at + size));
  return lines;
}

test("wherever the chunks end, each line comes out once and whole", () => {
  fc.assert(
    fc.property(fc.array(fc.string({ unit: "grapheme" })), fc.integer({ min: 1, max: 50 }), (texts, size) => {
      const wanted = texts.map((text) => JSON.stringify(text));
      assert.deepEqual(split(wanted.map((line) => `${line}\n`).join(""), size), wanted);
    }),
  );
});

test("empty lines are passed over, and a line without an end is none", () => {
  assert.deepEqual(split("\n\n{}\n\n{", 2), ["{}"]);
});

test("a line without an end is refused before it fills the memory", () => {
  const splitter = new JsonLines(() => {});
  const chunk = Buffer.alloc(1_048_576, "x");
  for (let bytes = 0; bytes < MAX_OBJECT_BYTES; bytes += chunk.length) splitter.push(chunk);
  assert.throws(() => splitter.push(chunk), FormatError);
});
