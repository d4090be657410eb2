import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { stripVTControlCharacters } from "node:util";
import { TEST_ENGINE } from "./test-engine.ts";

/** Runs a test file as the runner does. */
function run(t: TestContext, source: string) {
  const folder = mkdtempSync(join(tmpdir(), "kpts-engine-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "file.test.mjs");
  writeFileSync(file, `import { test } from "node:test";\n${source}`);
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const args = [...TEST_ENGINE, "--expose-internals", "--test-reporter=spec", file];
  const { status, stdout } = spawnSync(process.execPath, args, { env, encoding: "utf8" });
  return { status, stdout: stripVTControlCharacters(stdout) };
}

test("no hook of node:test follows promises", (t) => {
  const { stdout, status } = run(
    t,
    `import { createRequire } from "node:module";
const { internalBinding } = createRequire(import.meta.url)("internal/test/binding");
// How many there are for init, before, after, destroy and promiseResolve.
test("hooks", (t) => t.diagnostic("hooks: " + internalBinding("async_wrap").async_hook_fields.slice(0, 5).join(" ")));
`,
  );
  assert.equal(status, 0, stdout);
  assert.match(stdout, /hooks: 0 0 0 0 0$/m);
});

test("suites have their own tests and hooks, and one that the file does not speak of is refused", (t) => {
  const inside = run(
    t,
    `import { before, describe } from "node:test";
let isReady = false;
describe("outer", () => {
  describe("inner", () => {
    before(async () => { await new Promise((resolve) => setTimeout(resolve, 20)); isReady = true; });
    test("waits", () => { if (!isReady) throw new Error("too early"); });
  });
});
`,
  );
  assert.equal(inside.status, 0, inside.stdout);
  assert.match(inside.stdout, /▶ outer\n +▶ inner\n +✔ waits/);
  const elsewhere = run(
    t,
    `test("one", () => {});\nimport("node:test").then((all) => all["desc" + "ribe"]("other", () => {}));\n`,
  );
  assert.equal(elsewhere.status, 1, elsewhere.stdout);
  assert.match(elsewhere.stdout, /a suite in a module that/);
});

test("an error that no test waits for fails the file all the same", (t) => {
  for (const error of ["Promise.reject(new Error('lost'))", "setTimeout(() => { throw new Error('lost'); })"]) {
    const { stdout, status } = run(
      t,
      `test("passes", async () => { ${error}; await new Promise((resolve) => setTimeout(resolve, 20)); });`,
    );
    assert.equal(status, 1, stdout);
    assert.match(stdout, /lost/);
  }
});
