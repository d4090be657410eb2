import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { tableText } from "./table.ts";

const word = fc.stringMatching(/^[a-z0-9.:]{1,12}$/);
const cell = fc.array(word, { maxLength: 4 }).map((words) => words.join(" "));
const rows = fc
  .integer({ min: 1, max: 4 })
  .chain((columns) =>
    fc.array(fc.array(cell, { minLength: columns, maxLength: columns }), { minLength: 1, maxLength: 5 }),
  );
const wordsOf = (text: string) => text.split(/\s+/).filter((one) => one !== "");

test("columns are as wide as their widest cell, and the last is not padded", () => {
  const table = [
    ["NAME", "IP"],
    ["web", "10.96.0.10"],
    ["a-long-one", ""],
  ];
  assert.equal(tableText(table), "  NAME        IP\n  web         10.96.0.10\n  a-long-one\n");
});

test("in a terminal, cells wrap between words and lose none", () => {
  fc.assert(
    fc.property(rows, fc.integer({ min: 1, max: 100 }), (table, width) => {
      const text = tableText(table, "  ", width);
      assert.deepEqual(wordsOf(text).sort(), wordsOf(table.flat().join(" ")).sort());
      const longest = (index: number) =>
        Math.max(0, ...table.flatMap((row) => wordsOf(row[index] ?? "").map((one) => one.length)));
      const least = (table[0] ?? []).reduce(
        (sum, _, index) => sum + longest(index),
        2 + 2 * ((table[0]?.length ?? 1) - 1),
      );
      for (const line of text.split("\n")) assert.ok(line.length <= Math.max(width, least), `${line.length}: ${line}`);
    }),
  );
});

test("a share stays with its sign, and addresses stay whole", () => {
  assert.equal(tableText([["100 % of clients"]], "", 7), "100 %\nof\nclients\n");
  assert.match(tableText([["to 2001:db8:0:1::1234:5678"]], "", 10), /^2001:db8:0:1::1234:5678$/m);
});

test("a long name is shortened in its middle only where nothing else helps", () => {
  const name = `shop/${"a".repeat(40)}:https`;
  assert.ok(tableText([[name, "10.96.0.10"]], "", 80).includes(name));
  const [line = ""] = tableText([[name, "10.96.0.10"]], "", 40).split("\n");
  assert.match(line, /^shop\/a+…a*:https {2}10\.96\.0\.10$/);
  assert.equal(line.length, 40);
});
