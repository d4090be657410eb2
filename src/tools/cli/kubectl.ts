/** The user's own kubectl, with its rights, context and plugins. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { messageOf } from "../../logging/message-of.ts";
import { EXIT_FAILURE, UsageError } from "./output.ts";

/**
 * @param readOut, readErr read kubectl's two outputs to their ends, and may write to its input. If one fails, kubectl is killed. @param limitMs kills kubectl after this long.
 * @returns its exit status, and what was read. @throws UsageError if there is no kubectl.
 */
export async function runKubectl<Out, Err>(
  args: readonly string[],
  readOut: (stream: Readable, input: Writable) => Promise<Out>,
  readErr: (stream: Readable) => Promise<Err>,
  limitMs?: number,
): Promise<[status: number, out: Out, err: Err]> {
  const child = spawn("kubectl", args);
  // Node.js' own limit keeps this process waiting where there is no kubectl.
  const limit = limitMs === undefined ? undefined : setTimeout(() => child.kill("SIGKILL"), limitMs);
  const ended = once(child, "close").catch((error: unknown) => {
    throw new UsageError(`kubectl cannot be started: ${messageOf(error)}`);
  });
  const reading = Promise.all([ended, readOut(child.stdout, child.stdin), readErr(child.stderr)]);
  const [[status], out, err] = await reading
    .catch((error: unknown) => {
      child.kill("SIGKILL");
      if (error instanceof UsageError) throw error;
      throw new UsageError(`the answer cannot be used: ${messageOf(error)}`);
    })
    .finally(() => clearTimeout(limit));
  return [typeof status === "number" ? status : EXIT_FAILURE, out, err];
}

/** What kubectl says, without the log lines of its libraries before it. */
export function withoutLog(stderr: string): string {
  const said = stderr.replaceAll(/^[IWEF]\d{4} [\d:.]+ +\d+ \S+\] .*\n?/gm, "").trim();
  return said === "" ? stderr.trim() : said;
}

/** Whether kubectl says that a right is missing. */
export const isForbidden = (said = ""): boolean => /forbidden/i.test(said);
