/** A bpf file system for one test, in a mount namespace that no other program sees: its pins end with the test. */
import { spawn } from "node:child_process";
import { once } from "node:events";

/** Its mount point in that namespace, where programs look by default. */
const PLACE = "/sys/fs/bpf";
/** Ends when its input ends, so also if the test is killed. */
const SCRIPT = `mount -t bpf -o mode=0700 bpf ${PLACE} && echo mounted && exec cat`;

export interface TestBpffs {
  /** Its folder, accessible from here. */
  readonly path: string;
  /** Prefix for commands that need to see it at its usual place. */
  readonly wrapper: readonly [string, ...string[]];
}

/** Ends with the test. Needs root. */
export async function testBpffs(t: { after(end: () => Promise<void>): void }): Promise<TestBpffs> {
  const holder = spawn("unshare", ["--mount", "sh", "-c", SCRIPT], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(holder, "exit");
  t.after(async () => {
    holder.stdin.end();
    await ended;
  });
  await Promise.race([
    once(holder.stdout, "data"),
    ended.then(() => Promise.reject(new Error("no bpf file system could be mounted"))),
  ]);
  const { pid } = holder;
  return { path: `/proc/${pid}/root${PLACE}`, wrapper: ["nsenter", `--mount=/proc/${pid}/ns/mnt`] };
}
