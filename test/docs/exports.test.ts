/**
 * An export says that other files rely on it: one that no other file names is none. Types are left out, which declarations of others may need,
 * and src/lib, which is for other programs.
 */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CHECKOUT } from "./markdown.ts";

const FOLDERS = ["bench", "demo", "scripts", "src", "test", "testkit"].map((folder) => `${folder}/**/*.{ts,mjs}`);
const SHIPPED = /^src\/(?!lib\/)(?!.*(?:\.test\.ts$|\/testing\/))/;
const EXPORT = /^export (?:async )?(?:function\*?|const|class) (\w+)/gm;

test("what no other file names is not exported", () => {
  const texts = new Map(
    globSync(FOLDERS, { cwd: CHECKOUT }).map((file) => [file, readFileSync(join(CHECKOUT, file), "utf8")]),
  );
  const files = new Map<string, number>();
  for (const text of texts.values()) {
    for (const word of new Set(text.match(/\w+/g))) files.set(word, (files.get(word) ?? 0) + 1);
  }
  const unused = [...texts].flatMap(([file, text]) =>
    SHIPPED.test(file)
      ? [...text.matchAll(EXPORT)].flatMap(([, name = ""]) => (files.get(name) === 1 ? [`${file}: ${name}`] : []))
      : [],
  );
  assert.deepEqual(unused, []);
});
