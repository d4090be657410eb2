/**
 * Safe signals to child processes. A child that failed to start still has a handle, and after EMFILE its `kill` signals
 * any number that the handle's memory holds; 0 is this process's whole group.
 */
import type { ChildProcess } from "node:child_process";

type SignalledChild = Pick<ChildProcess, "pid" | "exitCode" | "signalCode" | "kill">;

/** Signals a running child; does nothing to one that never started or has ended. @returns whether it was signalled. */
export function signalChild(child: SignalledChild, signal: NodeJS.Signals = "SIGTERM"): boolean {
  const { pid, exitCode, signalCode } = child;
  if (pid === undefined || pid <= 0 || exitCode !== null || signalCode !== null) return false;
  return child.kill(signal);
}

/**
 * Ignores errors of a child's pipes: the child's own `error` event or exit status tells more. The pipes of a child that
 * did not start fail too, and those of a child that stops reading break (EPIPE).
 */
export function ignorePipeErrors(child: ChildProcess): void {
  // When the process has no descriptors left, all three are undefined, despite their type.
  for (const pipe of [child.stdin, child.stdout, child.stderr]) pipe?.on("error", () => {});
}
