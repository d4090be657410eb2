/**
 * Many unit-test files in one process: most take a tenth of the time that a separate process needs to start and load what
 * they test. Each file is a suite with the file's path as its name; `scripts/test-report.mjs` separates them again.
 *
 * Node.js's `--test-isolation=none` is no substitute (seen with 24.21): a hook of one file runs around the tests of all, a variable that
 * a file leaves behind is not noticed, and a file that ends the process takes the results of all others with it.
 */

import { join } from "node:path";
import { describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { stretched } from "../support/patience.ts";
import { leftBehind, processState } from "./left-behind.ts";

/** The suite that is not a file. */
export const WARM_UP = "start of the batch";
/** A file that takes longer hangs. */
const FILE_LIMIT_MS = 240_000;

export interface BatchOptions {
  /** Set in the environment before the first file is loaded. */
  readonly env?: Readonly<Record<string, string>>;
  /** @default four minutes */
  readonly fileLimitMs?: number;
  /** How long what a file leaves behind may take to disappear. @default 15 seconds */
  readonly patienceMs?: number;
}

/**
 * Runs the files one after the other. A file that leaves something behind in the process fails: it must clean up, or
 * match own-process.ts.
 *
 * @param root what the paths are relative to.
 */
export async function runBatch(root: string, files: readonly string[], options: BatchOptions = {}): Promise<void> {
  Object.assign(process.env, options.env);
  // The test machinery has its own listeners from the first suite on.
  await describe(WARM_UP, () => {});
  // Each of these is opened on first use, and stays.
  for (const stream of [process.stdin, process.stdout, process.stderr]) stream.once("error", () => {});
  // A test may wait for what keeps no process alive; its limit must end that, not the end of the process.
  const alive = setInterval(() => {}, 60_000);
  let isClean = true;
  for (const file of files) {
    const before = processState();
    await describe(file, { timeout: options.fileLimitMs ?? stretched(FILE_LIMIT_MS) }, async () => {
      await import(pathToFileURL(join(root, file)).href);
    });
    const left = await leftBehind(before, options.patienceMs);
    if (left.length > 0) {
      isClean = false;
      await test(`${file} leaves nothing behind in its process`, () => {
        throw new Error(`it leaves ${left.join("; ")}`);
      });
    }
  }
  clearInterval(alive);
  // What was left behind may keep the process from ending.
  if (!isClean) setImmediate(() => process.exit());
}
