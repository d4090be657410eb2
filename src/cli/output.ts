import { escapeLine } from "../logging/escape.ts";
import { EXIT_BAD_INPUT, UsageError } from "./exit.ts";
import type { Terminal } from "./terminal.ts";

export interface Output {
  out(text: string): void;
  err(text: string): void;
  /** How many characters the reader of `out` has not taken yet. @default it takes all at once */
  readonly waiting?: () => number;
  /** What the reader of `out` can show. @default neither colour nor a width */
  readonly terminal?: Terminal;
}

/** Runs a command whose exit status 1 is an answer: what the user must mend is said, and ends it with status 2. */
export async function inspecting(output: Output, run: () => Promise<number>): Promise<number> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    output.err(`Error: ${escapeLine(error.message)}\n${error.hint === undefined ? "" : `${escapeLine(error.hint)}\n`}`);
    return EXIT_BAD_INPUT;
  }
}
