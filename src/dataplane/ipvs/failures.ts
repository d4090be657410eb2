/** What the kernel refused in a sync, by service port: names for health and log. */
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

  get bySubject(): ReadonlyMap<string, SyncFailure> {
    return new Map(Array.from(this.#reasons, ([subject, reason]) => [subject, { subject, reason }]));
  }
}
