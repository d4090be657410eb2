import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { strippedSource } from "./stripped-sources.ts";

const ROOT = join(import.meta.dirname, "../..");
const FILE = "src/net/protocol.ts";
const PRELOAD = join(import.meta.dirname, "guest/load-stripped-sources.cjs");

test("code that the host has compiled is taken by a program inside", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-sources-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const env = { ...process.env, NODE_COMPILE_CACHE: join(folder, "compiled"), NODE_DEBUG_NATIVE: "COMPILE_CACHE" };
  const run = (more: NodeJS.ProcessEnv) => {
    const { stderr, status } = spawnSync(process.execPath, [join(ROOT, FILE)], {
      env: { ...env, ...more },
      encoding: "utf8",
    });
    assert.equal(status, 0, stderr);
    return stderr;
  };
  const accepted = /V8 code cache for ESM \S+\/protocol\.ts was accepted/;
  assert.doesNotMatch(run({}), accepted);
  const target = join(folder, "sources", FILE);
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, strippedSource(join(ROOT, FILE)));
  const inside = {
    KPTS_VM_CHECKOUT: ROOT,
    KPTS_VM_SOURCES: join(folder, "sources"),
    NODE_OPTIONS: `--require ${JSON.stringify(PRELOAD)}`,
  };
  assert.match(run(inside), accepted);
});
