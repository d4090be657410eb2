/** The error says how a plugin failed if not by an exit status. */
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { runProgram } from "./exec-credentials.ts";

const run = (script: string) => runProgram("/bin/sh", ["-c", script], process.env);

test("a plugin that a signal ended, as when memory is short", async () => {
  await assert.rejects(run("kill -KILL $$"), /^Error: it was ended by SIGKILL$/);
  await assert.rejects(run("echo last >&2; kill -SEGV $$"), /^Error: it was ended by SIGSEGV: last$/);
});

test("a plugin that may not be started", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-exec-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "plugin");
  writeFileSync(file, "#!/bin/sh\n");
  chmodSync(file, 0o600);
  await assert.rejects(runProgram(file, [], process.env), /^Error: it cannot be started: spawn .*plugin EACCES$/);
});

test("a plugin that prints without end did not take too long", async () => {
  await assert.rejects(run("yes"), /^Error: it printed more than 1 MiB$/);
});

test("an exit status is said as before", async () => {
  await assert.rejects(run("echo no login >&2; exit 3"), /^Error: exit status 3: no login$/);
});
