import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { logFile } from "./log-file.ts";

test("lines are appended, and a full file makes room for the next", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-log-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "kube proxy.log");
  logFile(path)("stderr", "one\n");
  const write = logFile(path, 8);
  write("stdout", "two\n");
  assert.equal(readFileSync(path, "utf8"), "one\ntwo\n");
  write("stderr", "three\n");
  assert.deepEqual([readFileSync(path, "utf8"), readFileSync(`${path}.1`, "utf8")], ["three\n", "one\ntwo\n"]);
});

test("a file that cannot make room grows on; one that cannot be opened is an error", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-log-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "log");
  mkdirSync(`${path}.1`);
  const write = logFile(path, 4);
  write("stderr", "one\n");
  write("stderr", "two\n");
  assert.equal(readFileSync(path, "utf8"), "one\ntwo\n");
  assert.throws(() => logFile(join(folder, "no", "log")), /ENOENT/);
});
