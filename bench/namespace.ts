/** Fresh network namespaces for the tools, and what must be removed when the bench ends early. */
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

let count = 0;
const open = new Map<string, string>();

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
  open.set(name, lock);
  try {
    execFileSync("ip", ["-n", name, "link", "set", "lo", "up"]);
    return await work({ name, env: { XTABLES_LOCKFILE: lock } });
  } finally {
    remove(name, lock);
  }
}

/** For signal handlers: removes every namespace still there. Processes inside must be gone. */
export function removeNamespaces(): void {
  for (const [name, lock] of open) remove(name, lock);
}

function remove(name: string, lock: string): void {
  open.delete(name);
  execFileSync("ip", ["netns", "delete", name]);
  rmSync(lock, { force: true });
}
