/** How a test process is started. */
import { fileURLToPath } from "node:url";

const UNTRACKED_PROMISES = fileURLToPath(new URL("untracked-promises.cjs", import.meta.url));

/**
 * JavaScript engine options of test processes. Several garbage collection threads take more processor time than one;
 * and untracked promises cost a third less.
 */
export const TEST_ENGINE: readonly string[] = ["--single-threaded-gc", "--require", UNTRACKED_PROMISES];
