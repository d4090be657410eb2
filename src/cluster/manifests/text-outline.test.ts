import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { isCutOff, outlineOf } from "./text-outline.ts";

const cut = (before: string, now: string): boolean => isCutOff(outlineOf(before), outlineOf(now));

test("a text that stops inside a line it had before is cut off", () => {
  assert.equal(cut("a: 1\nport: 8080\n", "a: 1\npor"), true);
  assert.equal(cut("a: 1\nport: 8080\n", "a: 1\nport: 80"), true);
  assert.equal(cut("a: 1\nport: 8080\n", "a"), true);
  assert.equal(cut("a: 1\n", ""), true);
});

test("a text that ends with a line, or differs, or grew, is an edit", () => {
  assert.equal(cut("a: 1\nport: 8080\n", "a: 1\n"), false);
  assert.equal(cut("a: 1\nport: 8080\n", "a: 1"), false);
  assert.equal(cut("a: 1\nport: 8080\n", "b: 1\npor"), false);
  assert.equal(cut("a: 1\n", "a: 1\nb"), false);
  assert.equal(cut("", ""), false);
});

test("the last line of a text without final line break can be shortened", () => {
  assert.equal(cut("a: 1\nport: 8080", "a: 1\nport: 80"), false);
  assert.equal(cut("a: 1\nport: 8080", "a:"), true);
});

test("every cut inside a line is recognised and none at a line's end", () => {
  const line = fc.string({ maxLength: 6 }).map((text) => text.replaceAll("\n", "·"));
  fc.assert(
    fc.property(fc.array(line, { minLength: 1, maxLength: 6 }), fc.nat(), (lines, seed) => {
      const text = `${lines.join("\n")}\n`;
      const at = seed % text.length;
      const isInsideLine = text[at] !== "\n" && text[at - 1] !== "\n";
      assert.equal(cut(text, text.slice(0, at)), at === 0 || isInsideLine);
    }),
  );
});
