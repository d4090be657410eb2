/** What of a sync the kernel refused, by whom it is for: names for health and log. */
import type { Logger } from "../../logging/logger.ts";
import type { SyncFailure, SyncInput } from "../../sync/backend.ts";

/** Gathers the failures of one sync: the first of each subject counts. */
export class SyncFailures {
  readonly #input: SyncInput;
  readonly #reasons = new Map<string, string>();

  constructor(input: SyncInput) {
    this.#input = input;
  }

  get size(): number {
    return this.#reasons.size;
  }

  /**
   * @param owner key of the service port that it is for.
   * @param what names it when it is for none.
   */
  add(owner: string | undefined, what: string, reason: string): void {
    const subject = owner === undefined ? what : (this.#input.services.get(owner)?.name.text ?? owner);
    if (!this.#reasons.has(subject)) this.#reasons.set(subject, reason);
  }

  /** Logs what was not among the failures of the sync before. @returns the failures. */
  report(before: readonly SyncFailure[], log: Logger): readonly SyncFailure[] {
    const known = new Map(before.map(({ subject, reason }) => [subject, reason]));
    const failures = Array.from(this.#reasons, ([subject, reason]): SyncFailure => ({ subject, reason }));
    for (const { subject, reason } of failures) {
      if (known.get(subject) === reason) continue;
      log.error("Not everything is in the kernel; all else is, and this will be tried again", new Error(reason), {
        subject,
      });
    }
    return failures;
  }
}
