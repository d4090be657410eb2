/**
 * Starts tools in every way the program has while fewer and fewer descriptors are left, down to none, and prints how
 * often that failed. Run it with a low `ulimit -n` and in its own process group.
 */
import { closeSync, openSync } from "node:fs";
import { runCommand } from "../../../testkit/net/run-command.ts";
import { ExecError, execProcess } from "../process.ts";

/** Enough for one start: its sockets, its pipes and the event loop's own descriptors. */
const MOST_LEFT = 12;

async function notStarted(start: () => Promise<unknown>): Promise<number> {
  try {
    await start();
    return 0;
  } catch (error) {
    if (error instanceof ExecError && error.code !== "not_started") throw error;
    return 1;
  }
}

/** @returns how many starts failed while `left` descriptors were free. */
async function startWith(left: number): Promise<number> {
  const taken: number[] = [];
  try {
    for (;;) taken.push(openSync("/dev/null", "r"));
  } catch {
    // No descriptors are left.
  }
  for (const descriptor of taken.splice(0, left)) closeSync(descriptor);
  const abort = new AbortController();
  let failed = 0;
  failed += await notStarted(() => execProcess("cat", [], { stdin: ["text"] }));
  failed += await notStarted(() => execProcess("cat", [], { timeoutMs: 50 }));
  const aborted = notStarted(() => execProcess("cat", [], { stdin: ["text"], signal: abort.signal }));
  abort.abort();
  failed += await aborted;
  failed += await notStarted(() => runCommand(["cat"], { input: "text", timeoutMs: 50 }));
  // Long enough for a time limit that was not cleared.
  await new Promise((resolve) => setTimeout(resolve, 100));
  for (const descriptor of taken) closeSync(descriptor);
  return failed;
}

// Load everything once, so that nothing must be loaded while there are no descriptors.
await execProcess("true", []);
await runCommand(["true"]);
let failed = 0;
for (let left = MOST_LEFT; left >= 0; left--) failed += await startWith(left);
const { stdout } = await execProcess("cat", [], { stdin: ["works again"] });
process.stdout.write(`${JSON.stringify({ failed, stdout })}\n`);
