import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { eventually } from "./bpf/testing/eventually.ts";
import { FolderInUse, FolderLock } from "./folder-lock.ts";

const make = (path: string): void => void mkdirSync(path, { recursive: true });

test("a folder has one holder, until it lets go or dies; one that is made again is taken again", async (t) => {
  const root = mkdtempSync(join(tmpdir(), "kpts-lock-"));
  t.after(() => rmSync(root, { recursive: true }));
  const folder = join(root, "a");
  const [one, other] = [new FolderLock(folder), new FolderLock(folder)];
  t.after(() => [one, other].map((lock) => lock.release()));
  one.hold(make);
  one.hold(make);
  assert.throws(() => other.hold(make), FolderInUse);
  one.release();
  other.hold(make);
  assert.throws(() => one.hold(make), FolderInUse);

  rmdirSync(folder);
  one.hold(make);
  assert.throws(() => other.hold(make), FolderInUse, "what it had is not there any more");
  one.release();

  const process = spawn("flock", ["-F", folder, "sh", "-c", `touch ${root}/held; exec sleep 60`]);
  await eventually(() => assert.ok(existsSync(`${root}/held`)));
  assert.throws(() => one.hold(make), FolderInUse);
  process.kill("SIGKILL");
  await once(process, "exit");
  rmSync(`${root}/held`);
  await eventually(() => one.hold(make));
});

test("what cannot be made is thrown", () => {
  assert.throws(() => new FolderLock("/dev/null/none").hold(make), /ENOTDIR/);
});
