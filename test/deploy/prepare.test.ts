/** npm's `prepare`: when it builds. */
import assert from "node:assert/strict";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { runCommand } from "../../testkit/net/run-command.ts";
import { CHECKOUT } from "../docs/markdown.ts";

test("an install builds, but not where what asked for it builds itself", async (t) => {
  const root = mkdtempSync(join(tmpdir(), "kpts-prepare-"));
  t.after(() => rmSync(root, { recursive: true }));
  cpSync(join(CHECKOUT, "scripts"), join(root, "scripts"), { recursive: true });
  // A compiler that finds fault with everything ends the build at once.
  const files = { "typescript/bin/tsc": 'require("node:fs").writeFileSync("compiled", ""); process.exit(1);' };
  for (const [path, text] of Object.entries({ ...files, "@types/node/package.json": "{}" })) {
    const file = join(root, "node_modules", path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
  const prepare = async (...variables: readonly string[]) => {
    rmSync(join(root, "compiled"), { force: true });
    const command = ["env", "-u", "npm_command", ...variables, process.execPath, "scripts/prepare.mjs"] as const;
    const { status } = await runCommand(command, { cwd: root, allowFailure: true });
    return [status, existsSync(join(root, "compiled"))];
  };
  assert.deepEqual(await prepare(), [1, true]);
  assert.deepEqual(await prepare("npm_command=ci"), [1, true]);
  assert.deepEqual(await prepare("npm_command=ci", "KPTS_BUILT_LATER=1"), [0, false]);
  assert.deepEqual(await prepare("npm_command=pack"), [0, false]);
});

test("packages of Debian are installed under a lock that only root can make", {
  skip: process.getuid?.() !== 0,
}, () => {
  const text = readFileSync(join(CHECKOUT, "scripts/system-tools.mjs"), "utf8");
  const [, lock = ""] = /const APT_LOCK = "(.+)"/.exec(text) ?? [];
  const { mode, uid } = statSync(dirname(lock));
  assert.deepEqual([uid, mode & 0o022], [0, 0]);
  assert.doesNotMatch(text, /tmpdir/);
});

test("who holds that lock is waited for, with a word and ten minutes at most", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-lock-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const calls = join(folder, "calls");
  // Says that another has the lock, as the real one does with the status that it is given.
  writeFileSync(join(folder, "flock"), `#!/bin/sh\necho "$*" >> '${calls}'\nexit "$2"\n`, { mode: 0o755 });
  const command = ["env", `PATH=${folder}:${process.env.PATH}`, process.execPath, "scripts/system-tools.mjs", "update"];
  const { stderr } = await runCommand(command as [string, ...string[]], { cwd: CHECKOUT });
  assert.match(stderr, /^another installation holds \S+: waiting for 10 minutes at most$/m);
  const waits = readFileSync(calls, "utf8").trim().split("\n");
  assert.deepEqual(
    waits.map((words) => / (--nonblock|--timeout \d+) /.exec(words)?.[1]),
    ["--nonblock", "--timeout 600"],
  );
});
