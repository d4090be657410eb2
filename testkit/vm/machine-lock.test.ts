import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { signalChild } from "../../src/kernel/child-process.ts";
import { lockMachine } from "./machine-lock.ts";

const LIMIT_MS = 60_000;
const MODULE = fileURLToPath(new URL("machine-lock.ts", import.meta.url));

function homeFor(t: TestContext): string {
  const home = mkdtempSync(join(tmpdir(), "kpts-lock-"));
  t.after(() => rmSync(home, { recursive: true }));
  return home;
}

test("the second waits until the first lets go, and finds an empty folder", async (t) => {
  const home = homeFor(t);
  const first = await lockMachine(LIMIT_MS, () => assert.fail("nobody was ahead"), home);
  writeFileSync(join(first.folder, "status"), "0");
  const ahead = Promise.withResolvers<string>();
  const second = lockMachine(LIMIT_MS, ahead.resolve, home);
  assert.equal(await ahead.promise, String(process.pid));
  first.release();
  const { folder, release } = await second;
  assert.equal(existsSync(join(folder, "status")), false);
  release();
});

test("a process that is killed leaves no lock", async (t) => {
  const home = homeFor(t);
  const program = `
    const { lockMachine } = await import(${JSON.stringify(MODULE)});
    await lockMachine(${LIMIT_MS}, () => {}, ${JSON.stringify(home)});
    console.log("locked");
    setInterval(() => {}, 1000);
  `;
  const victim = spawn(process.execPath, ["--input-type=module", "-e", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(victim.stdout, "data");
  signalChild(victim, "SIGKILL");
  (await lockMachine(LIMIT_MS, () => {}, home)).release();
});

test("who waits for too long is told who has the machine", async (t) => {
  const home = homeFor(t);
  const first = await lockMachine(LIMIT_MS, () => {}, home);
  t.after(() => first.release());
  const message = new RegExp(`no turn within 0.2 s: process ${process.pid} has the machine`);
  await assert.rejects(
    lockMachine(200, () => {}, home),
    message,
  );
});
