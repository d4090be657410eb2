/** docs/commands.md says what the program's flags and usage texts say. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { FLAGS } from "../../src/tools/cli/flags/table.ts";
import { COMMAND_REFERENCE, commandReference, FLAG_GROUPS } from "./command-reference.ts";
import { CHECKOUT } from "./markdown.ts";

test("the page is what the flags say; otherwise `npm run docs` writes it again", async () => {
  assert.equal(readFileSync(join(CHECKOUT, COMMAND_REFERENCE), "utf8"), await commandReference());
});

test("every flag is on the page, once", () => {
  const names = Object.values(FLAG_GROUPS).flatMap((flags) => flags.map(({ name }) => name));
  assert.deepEqual(names.sort(), FLAGS.map(({ name }) => name).sort());
});
