/** How the commands that look at a node end when their input is bad: their exit status 1 is an answer, so that is 2. */
import { escapeLine } from "../logging/escape.ts";
import { EXIT_BAD_INPUT, UsageError } from "./exit.ts";
import type { Output } from "./output.ts";

/** Runs a command; what the user must mend is said, and ends it with status 2. */
export async function inspecting(output: Output, run: () => Promise<number>): Promise<number> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    output.err(`Error: ${escapeLine(error.message)}\n${error.hint === undefined ? "" : `${escapeLine(error.hint)}\n`}`);
    return EXIT_BAD_INPUT;
  }
}
