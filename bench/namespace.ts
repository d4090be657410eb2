/** Fresh network namespaces for the tools, removed however the bench ends. */
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

let count = 0;

export interface Namespace {
  readonly name: string;
  /** For tools inside: a lock of their own, so that other users of iptables on this machine do not delay them. */
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

/** Does the work when the process ends, unless the function that this returns has done it before. */
export function atExit(work: () => void): () => void {
  pending.add(work);
  return () => {
    if (pending.delete(work)) work();
  };
}
