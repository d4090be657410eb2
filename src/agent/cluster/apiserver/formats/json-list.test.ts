import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../../../testkit/support/fast-check.ts";
import { JsonList } from "./json.ts";
import { FormatError } from "./pieces.ts";

/** Pushes the text in chunks of these sizes, repeating the last size. */
function listIn(text: string, sizes: readonly number[] = [7]): unknown {
  const list = new JsonList();
  const bytes = Buffer.from(text, "utf8");
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const size = sizes[Math.min(turn, sizes.length - 1)] ?? 1;
    list.push(bytes.subarray(at, at + size));
    at += size;
  }
  return list.end();
}

test("with any objects and chunks, a list comes out as it went in", () => {
  const item = fc.jsonValue({ maxDepth: 4, stringUnit: "grapheme" });
  const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 5 });
  const indent = fc.constantFrom(undefined, 1, "\t");
  fc.assert(
    fc.property(fc.array(item, { maxLength: 6 }), sizes, indent, (items, chunkSizes, space) => {
      const text = JSON.stringify({ kind: "ServiceList", metadata: { resourceVersion: "7" }, items }, undefined, space);
      assert.deepEqual(listIn(`\n ${text}\n`, chunkSizes), JSON.parse(text));
    }),
    { numRuns: 300 },
  );
});

test("text that ends early, begins otherwise or goes on is refused", () => {
  const whole = '{"kind":"A","items":[{"a":1},{"b":"x"}]}';
  for (let length = 0; length < whole.length; length++) {
    assert.throws(() => listIn(whole.slice(0, length)), FormatError, whole.slice(0, length));
  }
  for (const text of ["<html>", "[1]", '"a"', `${whole}{}`, `${whole}x`, "}", '{"items":[}', '{"a" 1}', "null"]) {
    assert.throws(() => listIn(text), FormatError, text);
  }
});

test("endless text that is no object is refused at once", () => {
  assert.throws(() => new JsonList().push(Buffer.from("<html>")), /not a whole JSON object: "<html>"/);
});
