/**
 * What every user of a child process must know: one that could not be started still has a handle, and with
 * EMFILE its `kill` signals any number that the handle's memory holds. 0 is this process's whole group.
 */
import type { ChildProcess } from "node:child_process";

/** The parts of a child that matter when it is signalled. */
type SignalledChild = Pick<ChildProcess, "pid" | "exitCode" | "signalCode" | "kill">;

/** Signals a child that runs; one that never started, or has ended, is left alone. @returns whether it was signalled. */
export function signalChild(child: SignalledChild, signal: NodeJS.Signals = "SIGTERM"): boolean {
  const { pid, exitCode, signalCode } = child;
  if (pid === undefined || pid <= 0 || exitCode !== null || signalCode !== null) return false;
  return child.kill(signal);
}

/**
 * Makes errors of the pipes to a child harmless. What matters is the child's own `error` or status: the pipes of one that
 * did not start fail as well, those of one that stops reading break (EPIPE).
 */
export function ignorePipeErrors(child: ChildProcess): void {
  // Without descriptors the three are undefined, despite their type.
  for (const pipe of [child.stdin, child.stdout, child.stderr]) pipe?.on("error", () => {});
}
