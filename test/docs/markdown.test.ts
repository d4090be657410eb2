/** Every Markdown document: tables that GitHub shows as tables, and links that lead somewhere. */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";
import { runCommand } from "../../testkit/net/run-command.ts";
import { anchorsOf, CHECKOUT, cellsOf, markdownFiles, proseLines, type TextLine } from "./markdown.ts";

const files = markdownFiles();
const isRow = ({ text }: TextLine) => /^\s*\|/.test(text);
const isDelimiter = (cells: readonly string[]) => cells.every((cell) => /^:?-+:?$/.test(cell));

/** Runs of rows without anything between them. */
function tablesOf(path: string): readonly (readonly TextLine[])[] {
  const tables: TextLine[][] = [];
  let before = 0;
  for (const line of proseLines(path).filter(isRow)) {
    if (line.number === before + 1) tables.at(-1)?.push(line);
    else tables.push([line]);
    before = line.number;
  }
  return tables;
}

for (const path of files) {
  test(`${path}: every row stands in a table that has a head, and has as many cells`, () => {
    for (const [head, delimiter, ...rows] of tablesOf(path)) {
      assert.ok(head !== undefined);
      const where = `${path}:${head.number}`;
      assert.ok(delimiter !== undefined && isDelimiter(cellsOf(delimiter.text)), `${where}: a row without a table`);
      const columns = cellsOf(head.text).length;
      for (const row of [delimiter, ...rows]) {
        assert.equal(cellsOf(row.text).length, columns, `${path}:${row.number}: cells`);
      }
      assert.ok(rows.length > 0, `${where}: an empty table`);
    }
  });

  test(`${path}: pictures say in words what they show`, () => {
    for (const { number, text } of proseLines(path)) {
      for (const [, words = ""] of text.replaceAll(/`[^`]*`/g, "").matchAll(/!\[([^\]]*)\]\(/g)) {
        assert.ok(words.length > 20, `${path}:${number}`);
      }
    }
  });

  test(`${path}: links inside of the repository lead somewhere`, () => {
    for (const { number, text } of proseLines(path)) {
      for (const [, target = ""] of text.replaceAll(/`[^`]*`/g, "").matchAll(/\]\(([^)\s]+)\)/g)) {
        if (/^[a-z]+:/.test(target)) continue;
        const [file = "", anchor] = target.split("#");
        const found = file === "" ? path : normalize(join(dirname(path), file));
        assert.ok(existsSync(join(CHECKOUT, found)), `${path}:${number}: ${target}`);
        if (anchor !== undefined) assert.ok(anchorsOf(found).has(anchor), `${path}:${number}: ${target}`);
      }
    }
  });
}

test("pictures are as their script draws them", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-pictures-"));
  t.after(() => rmSync(folder, { recursive: true }));
  await runCommand([process.execPath, join(CHECKOUT, "scripts/pictures.mjs"), folder]);
  const names = readdirSync(folder);
  assert.ok(names.length >= 3);
  for (const name of names) {
    const committed = readFileSync(join(CHECKOUT, "docs/pictures", name), "utf8");
    assert.equal(committed, readFileSync(join(folder, name), "utf8"), `${name}: node scripts/pictures.mjs`);
  }
});
