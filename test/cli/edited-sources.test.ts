/** Which program `bin/kube-proxy` starts in a checkout: the built one, or the sources. */
import assert from "node:assert/strict";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { runKubeProxy } from "./run-kube-proxy.ts";

const BIN = fileURLToPath(new URL("../../bin", import.meta.url));
const BUILT_MS = Date.UTC(2026, 0, 1);

/** A checkout whose program says where it comes from. Paths with their age, in milliseconds after the build began. */
function checkout(t: TestContext, ages: Readonly<Record<string, number>>): () => Promise<string> {
  const root = mkdtempSync(join(tmpdir(), "kpts edited-"));
  t.after(() => rmSync(root, { recursive: true }));
  cpSync(BIN, join(root, "bin"), { recursive: true });
  mkdirSync(join(root, "node_modules/.bin"), { recursive: true });
  symlinkSync(process.execPath, join(root, "node_modules/.bin/node"));
  for (const [path, ageMs] of Object.entries(ages)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), path.endsWith(".json") ? "{}" : `console.log(${JSON.stringify(path)});`);
    const at = new Date(BUILT_MS + ageMs);
    utimesSync(join(root, path), at, at);
  }
  return async () => {
    const { stdout, stderr } = await runKubeProxy([], { program: join(root, "bin/kube-proxy") });
    return stderr + stdout.trim();
  };
}

const MAIN = "dist/bundle/main.js";
const SOURCE = "src/tools/cli/main.ts";
const built = { [MAIN]: 0, [SOURCE]: -1_000, "package.json": -1_000, "package-lock.json": -1_000 };

test("a build that is newer than all sources runs", async (t) => {
  const tests = { "src/net/ip.test.ts": 1_000, "src/net/testing/rig.ts": 1_000, "test/x.ts": 1_000 };
  assert.equal(await checkout(t, { ...built, ...tests })(), MAIN, "tests are no part of it");
});

for (const edited of [SOURCE, "src/tools/page/client/style.css", "src/kernel/bpf/socket4.o", "package-lock.json"]) {
  test(`the sources run once ${edited} is newer than the beginning of the build`, async (t) => {
    assert.equal(await checkout(t, { ...built, [edited]: 1 })(), SOURCE);
  });
}

test("without a build the sources run, and without sources the build", async (t) => {
  assert.equal(await checkout(t, { [SOURCE]: 0 })(), SOURCE);
  assert.equal(await checkout(t, { [MAIN]: 0, "package.json": 1_000, "dist/x.js": 1_000 })(), MAIN);
});
