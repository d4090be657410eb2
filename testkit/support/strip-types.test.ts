import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const ROOT = join(import.meta.dirname, "../..");
const FILE = "src/net/protocol.ts";

test("types that scripts/strip-types.cjs has removed are not removed again", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-stripped-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const env = { ...process.env, NODE_COMPILE_CACHE: folder };
  execFileSync(process.execPath, ["--expose-internals", "scripts/strip-types.cjs", FILE], { cwd: ROOT, env });
  const { stderr, status } = spawnSync(process.execPath, [join(ROOT, FILE)], {
    env: { ...env, NODE_DEBUG_NATIVE: "COMPILE_CACHE" },
    encoding: "utf8",
  });
  assert.equal(status, 0, stderr);
  assert.match(stderr, /reading cache from \S+ for StrippedTypeScript \S+\/protocol\.ts\.\.\..* success/);
});
