import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import fc from "../../../../testkit/support/fast-check.ts";
import { splitDocuments } from "./parse-manifest.ts";

const split = (stream: string): string[] => Array.from(splitDocuments(stream), ({ line, text }) => `${line}:${text}`);

test("documents begin at their markers, comments and directives go with the next", () => {
  assert.deepEqual(split(""), []);
  assert.deepEqual(split("# nothing\n"), []);
  assert.deepEqual(split("a: 1"), ["1:a: 1"]);
  assert.deepEqual(split("# x\n---\na: 1\n---\nb: 2\n"), ["1:# x\n---\na: 1\n", "4:---\nb: 2\n"]);
  assert.deepEqual(split("a: 1\n...\nb: 2\n"), ["1:a: 1\n...\n", "3:b: 2\n"]);
  assert.deepEqual(split("a: 1\n...\n%YAML 1.2\n---\nb: 2\n"), ["1:a: 1\n...\n", "3:%YAML 1.2\n---\nb: 2\n"]);
  assert.deepEqual(split("--- a\n---b\n----\n"), ["1:--- a\n---b\n----\n"]);
  assert.deepEqual(split("a: |\n  x\n ---\n  ---\n"), ["1:a: |\n  x\n ---\n  ---\n"]);
  assert.deepEqual(split("a: 1\r\n---\r\nb: 2\r\n"), ["1:a: 1\r\n", "2:---\r\nb: 2\r\n"]);
});

test("what the pieces hold is what the stream holds", () => {
  const line = fc.constantFrom(
    "---",
    "--- x",
    "...",
    "# c",
    "",
    "a: 1",
    "b: |",
    "  text",
    "- 1",
    "%YAML 1.2",
    "c: 'q'",
  );
  const values = (text: string): unknown[] => {
    const documents = parseAllDocuments(text);
    return Array.isArray(documents)
      ? documents.map((document) => (document.errors.length > 0 ? "?" : document.toJS()))
      : [];
  };
  fc.assert(
    fc.property(fc.array(line, { maxLength: 10 }), (lines) => {
      const stream = `${lines.join("\n")}\n`;
      const whole = values(stream);
      // For a broken stream the document boundaries are undefined.
      if (whole.includes("?")) return;
      const pieces = Array.from(splitDocuments(stream), ({ text }) => values(text)).flat();
      const held = (all: unknown[]): unknown[] => all.filter((value) => value !== null);
      assert.deepEqual(held(pieces), held(whole));
    }),
    { numRuns: 2000 },
  );
});
