/** A bpf file system of the test's own, in a mount namespace that no other program sees: pins in it end with the test. */
import { spawn } from "node:child_process";
import { once } from "node:events";

/** Where it is, in that namespace: what a program looks for by itself. */
const PLACE = "/sys/fs/bpf";
/** Ends with its input, also when the test is killed. */
const SCRIPT = `mount -t bpf -o mode=0700 bpf ${PLACE} && echo mounted && exec cat`;

export interface TestBpffs {
  /** Its folder, reachable from here. */
  readonly path: string;
  /** Begins a command that is to see it in its usual place. */
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
