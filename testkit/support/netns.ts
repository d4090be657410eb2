/** Runs the host's tools inside a test's own network namespace, from a process that stays outside. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { inNetworkNamespace } from "../../src/kernel/network-namespace.ts";
import { type Exec, execProcess } from "../../src/kernel/process.ts";
import { NetworkNamespace, namespacePath } from "../net/network-namespace.ts";

export { netnsSkip } from "../needs/kernel-tools.ts";

export interface TestNetns {
  readonly name: string;
  /** Runs a tool inside; the xtables lock is the namespace's own file. */
  readonly exec: Exec;
  /** The file that legacy iptables locks in this namespace. */
  readonly lockPath: string;
}

let count = 0;

/** Creates a namespace that is removed when the test (or suite) ends, however it ends. */
export async function netnsFor(t: Pick<TestContext, "after">, purpose: string): Promise<TestNetns> {
  count += 1;
  const folder = mkdtempSync(join(tmpdir(), "kpts-netns-"));
  const lockPath = join(folder, "xtables.lock");
  const namespace = await NetworkNamespace.create(`kpts-${purpose}-${process.pid}-${count}`);
  t.after(async () => {
    await namespace.remove();
    rmSync(folder, { recursive: true });
  });
  return { name: namespace.name, exec: netnsExec(namespace.name, { XTABLES_LOCKFILE: lockPath }), lockPath };
}

/** An {@link Exec} whose tools run inside an existing namespace, with these additions to their environment. */
export function netnsExec(name: string, env: Readonly<Record<string, string>> = {}): Exec {
  return (file, args, options = {}) =>
    inNetworkNamespace(namespacePath(name), () =>
      execProcess(file, args, { ...options, env: { ...env, ...options.env } }),
    );
}
