/** A cgroup for one test: nothing is ever attached elsewhere. */
import { mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { cgroupMount } from "../../../../testkit/net/client-cgroup.ts";
import { eventually } from "./eventually.ts";

/** Why tests cannot use the kernel's eBPF here. */
export function reasonToSkip(): string | false {
  if (process.getuid?.() !== 0) return "eBPF needs root";
  if (process.arch !== "x64" && process.arch !== "arm64") return `no system call number for ${process.arch}`;
  return cgroupMount() === undefined ? "no cgroup2 file system is mounted" : false;
}

let made = 0;

/** An empty child of the root, removed after the test. */
export function testCgroup(t: TestContext): string {
  const root = cgroupMount();
  if (root === undefined) throw new Error("no cgroup2 file system is mounted");
  const path = join(root, `kpts-bpf-${process.pid}-${made++}`);
  mkdirSync(path);
  t.after(async () => {
    // Remaining processes would keep it; the kernel releases a process only some time after its end.
    writeFileSync(join(path, "cgroup.kill"), "1");
    await eventually(() => rmdirSync(path));
  });
  return path;
}

/** Moves a process into the cgroup. */
export function moveInto(cgroup: string, pid: number): void {
  writeFileSync(join(cgroup, "cgroup.procs"), `${pid}`);
}
