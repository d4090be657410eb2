/** How a command ends: the statuses and the two kinds of errors. Reference start.md §1, §2.1. */

export const EXIT_SUCCESS = 0;
/** The only failure status that kube-proxy chooses itself. */
export const EXIT_FAILURE = 1;

/** A command line or input that cannot be used, where {@link EXIT_FAILURE} is an answer. */
export const EXIT_BAD_INPUT = 2;

/**
 * A command line that cannot be used. It is printed as `Error: …` on standard error, with the hint, if there is one, in a
 * line after it; nothing is logged, because logging is not set up yet.
 */
export class UsageError extends Error {
  override readonly name = "UsageError";
  /** What to type instead. */
  readonly hint: string | undefined;
  constructor(message: string, hint?: string) {
    super(message);
    this.hint = hint;
  }
}

/** A start-up step that failed after the command line was read: logged as `"command failed" err="<message>"`. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}
