import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../../../testkit/support/fast-check.ts";
import { JsonList } from "./json-list.ts";
import { FormatError } from "./pieces.ts";

const NO_LIMIT = 1_000_000;

/** Pushes the text in chunks of these sizes, repeating the last size. */
function split(text: string, sizes: readonly number[] = [7], maxItemBytes = NO_LIMIT) {
  const items: { readonly text: string; readonly isWhole: boolean }[] = [];
  const list = new JsonList(maxItemBytes, ({ content, isWhole }) => items.push({ text: content.toString(), isWhole }));
  const bytes = Buffer.from(text, "utf8");
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const size = sizes[Math.min(turn, sizes.length - 1)] ?? 1;
    list.push(bytes.subarray(at, at + size));
    at += size;
  }
  return { items, rest: () => list.end() };
}

test("with any objects and chunks, each item comes out as it went in", () => {
  const item = fc.jsonValue({ maxDepth: 4, stringUnit: "grapheme" });
  const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 5 });
  const indent = fc.constantFrom(undefined, 1, "\t");
  fc.assert(
    fc.property(fc.array(item, { maxLength: 6 }), sizes, indent, fc.boolean(), (values, chunkSizes, space, atEnd) => {
      const head = { kind: "ServiceList", metadata: { resourceVersion: "7", items: [[1], "]"] } };
      const list = atEnd ? { ...head, items: values } : { items: values, ...head };
      const { items, rest } = split(JSON.stringify(list, undefined, space), chunkSizes);
      assert.deepEqual(
        items.map(({ text }) => JSON.parse(text)),
        JSON.parse(JSON.stringify(values)),
      );
      assert.deepEqual({ ...rest() }, { ...head, items: [] });
    }),
    { numRuns: 300 },
  );
});

test("a list without items, or with null for them, is a list", () => {
  assert.deepEqual(split('{"kind":"A","items":null}').rest(), { kind: "A", items: null });
  assert.deepEqual(split('{"kind":"A"}\n').rest(), { kind: "A" });
});

test("items of objects further in are not taken for those of the list", () => {
  const { items, rest } = split('{"a":{"items":[1]},"b":"\\"items\\":[","items":[{"items":[2]}]}');
  assert.deepEqual(
    items.map(({ text }) => text),
    ['{"items":[2]}'],
  );
  assert.deepEqual(rest(), { a: { items: [1] }, b: '"items":[', items: [] });
});

test("text that ends early, begins otherwise or goes on is refused", () => {
  const whole = '{"kind":"A","items":[{"a":1},{"b":"x"}]}';
  for (let length = 0; length < whole.length; length++) {
    assert.throws(split(whole.slice(0, length)).rest, FormatError, whole.slice(0, length));
  }
  for (const text of ["<html>", "[1]", '"a"', `${whole}{}`, `${whole}x`, "}", '{"items":[}', '{"a" 1}']) {
    assert.throws(() => split(text).rest(), FormatError, text);
  }
});

test("of an item that is too large only the beginning is kept, the next ones are whole", () => {
  const large = JSON.stringify({ metadata: { name: "big" }, data: "x".repeat(50_000) });
  const { items, rest } = split(`{"items":[{"a":1},${large},{"b":2}]}`, [1_000], 10_000);
  assert.deepEqual(
    items.map(({ isWhole }) => isWhole),
    [true, false, true],
  );
  assert.ok(items[1]?.text.startsWith('{"metadata":{"name":"big"}'));
  assert.ok((items[1]?.text.length ?? 0) <= 16_384);
  assert.equal(items[2]?.text, '{"b":2}');
  assert.deepEqual(rest(), { items: [] });
});

test("endless text outside of the items is refused before it fills the memory", () => {
  assert.throws(() => split(`{"a":"${"x".repeat(2_000_000)}`, [65_536]), /not a list of objects/);
});
