/** Fresh network namespaces and cgroups, removed however the bench ends. */
import { execFileSync } from "node:child_process";
import { mkdirSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cgroupMount } from "../testkit/net/client-cgroup.ts";
import "../testkit/needs/kernel-tools.ts";

let count = 0;

export interface Namespace {
  readonly name: string;
  /** For tools inside: their own lock, so that other iptables users on this machine do not delay them. */
  readonly env: Readonly<Record<string, string>>;
}

/** Runs the work with a new namespace, loopback up, which is removed afterwards. */
export async function withNamespace<T>(work: (namespace: Namespace) => Promise<T>): Promise<T> {
  count += 1;
  const name = `kpts-bench-${process.pid}-${count}`;
  const lock = join(tmpdir(), `${name}.lock`);
  execFileSync("ip", ["netns", "add", name]);
  const remove = atExit(() => {
    execFileSync("ip", ["netns", "delete", name]);
    rmSync(lock, { force: true });
  });
  try {
    execFileSync("ip", ["-n", name, "link", "set", "lo", "up"]);
    return await work({ name, env: { XTABLES_LOCKFILE: lock } });
  } finally {
    remove();
  }
}

const pending = new Set<() => void>();

process.on("exit", () => {
  for (const work of pending) work();
});

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => process.exit(1));

/** Does the work when the process exits, unless the returned function has already done it. */
export function atExit(work: () => void): () => void {
  pending.add(work);
  return () => {
    if (pending.delete(work)) work();
  };
}

const REMOVAL_ATTEMPTS = 100;
let groups = 0;

/** Runs the work with a new cgroup, which ends with everything that runs in it. */
export async function withCgroup<T>(work: (cgroup: string) => Promise<T>): Promise<T> {
  const mount = cgroupMount();
  if (mount === undefined) throw new Error("no cgroup2 file system is mounted");
  groups += 1;
  const cgroup = join(mount, `kpts-bench-${process.pid}-${groups}`);
  mkdirSync(cgroup);
  const remove = atExit(() => endCgroup(cgroup));
  try {
    return await work(cgroup);
  } finally {
    remove();
  }
}

/** The kernel releases a process some time after its end. */
function endCgroup(cgroup: string): void {
  writeFileSync(join(cgroup, "cgroup.kill"), "1");
  for (let attempt = 0; ; attempt += 1) {
    try {
      rmdirSync(cgroup);
      return;
    } catch (error) {
      if (attempt >= REMOVAL_ATTEMPTS) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
    }
  }
}
