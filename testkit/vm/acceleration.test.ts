/** With a stand-in for qemu. */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { acceleration, QEMU } from "./acceleration.ts";
import type { MachineFiles } from "./machine.ts";

interface World {
  readonly folder: string;
  readonly files: MachineFiles;
  readonly device: string;
  /** How often qemu was started. */
  boots(): number;
}

function worldWith(t: TestContext, qemu: string): World {
  const folder = mkdtempSync(join(tmpdir(), "kpts-accel-"));
  const { PATH } = process.env;
  process.env.PATH = `${folder}:${PATH}`;
  t.after(() => {
    process.env.PATH = PATH;
    rmSync(folder, { recursive: true });
  });
  const started = join(folder, "started");
  writeFileSync(join(folder, QEMU), `#!/bin/sh\necho x >> ${started}\n${qemu}`, { mode: 0o755 });
  for (const name of ["kvm", "busybox"]) writeFileSync(join(folder, name), "");
  const files = { kernel: "/a/kernel", busybox: join(folder, "busybox"), modules: "/a/modules" };
  const boots = () => (existsSync(started) ? readFileSync(started, "utf8").length / 2 : 0);
  return { folder, files, device: join(folder, "kvm"), boots };
}

test("a kernel that boots is run by the processor; that is tried once for each kernel", (t) => {
  const { folder, files, device, boots } = worldWith(t, "echo kpts-booted");
  assert.equal(acceleration(folder, files, device).accel, "kvm");
  assert.equal(acceleration(folder, files, device).accel, "kvm");
  assert.equal(boots(), 1);
  acceleration(folder, { ...files, kernel: "/another" }, device);
  assert.equal(boots(), 2);
});

test("a device with which no kernel boots leads to emulation, and is not tried again", (t) => {
  const { folder, files, device, boots } = worldWith(t, "echo failed to set MSR >&2; exit 134");
  assert.match(acceleration(folder, files, device).accel, /^tcg/);
  assert.match(acceleration(folder, files, device).accel, /^tcg/);
  assert.equal(boots(), 1);
});

test("without the device nothing is tried", (t) => {
  const { folder, files, boots } = worldWith(t, "echo kpts-booted");
  assert.match(acceleration(folder, files, join(folder, "none")).accel, /^tcg/);
  assert.equal(boots(), 0);
});
