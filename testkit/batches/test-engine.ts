/** How a test process is started. */
import { fileURLToPath } from "node:url";

const UNTRACKED_PROMISES = fileURLToPath(new URL("untracked-promises.cjs", import.meta.url));

/**
 * For the JavaScript engine of test processes. Threads that help to collect garbage take more processor time than one alone; and
 * promises that are not followed cost a third less.
 */
export const TEST_ENGINE: readonly string[] = ["--single-threaded-gc", "--require", UNTRACKED_PROMISES];
