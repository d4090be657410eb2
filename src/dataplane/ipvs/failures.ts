/** What the kernel refused in a sync, by service port: names for health and log. */
import type { SyncFailure, SyncInput } from "../../sync/backend.ts";

/** Gathers the failures of one sync: the first of each subject counts. */
export class SyncFailures {
  readonly #input: SyncInput;
  readonly #bySubject = new Map<string, SyncFailure>();

  constructor(input: SyncInput) {
    this.#input = input;
  }

  get size(): number {
    return this.#bySubject.size;
  }

  /**
   * @param owner key of the service port that it is for.
   * @param what names it when it is for none.
   */
  add(owner: string | undefined, what: string, reason: string): void {
    const subject = owner === undefined ? what : (this.#input.services.get(owner)?.name.text ?? owner);
    this.#note({ subject, reason });
  }

  /** What every service depends on. */
  addGeneral(subject: string, reason: string): void {
    this.#note({ subject, reason, concernsAll: true });
  }

  #note(failure: SyncFailure): void {
    if (!this.#bySubject.has(failure.subject)) this.#bySubject.set(failure.subject, failure);
  }

  get bySubject(): ReadonlyMap<string, SyncFailure> {
    return this.#bySubject;
  }
}
