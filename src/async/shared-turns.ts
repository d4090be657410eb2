/**
 * One piece of work that several callers ask for and that never overlaps itself. A caller that asks while it runs waits for
 * one further turn, shared with all who ask until that turn begins: what they want done is then part of it.
 */

export class SharedTurns {
  readonly #work: () => Promise<void>;
  #running: Promise<void> | undefined;
  #waiting: Promise<void> | undefined;

  constructor(work: () => Promise<void>) {
    this.#work = work;
  }

  /** A turn that begins now or when the present one is over; settles as that turn does. */
  take(): Promise<void> {
    if (this.#waiting !== undefined) return this.#waiting;
    if (this.#running === undefined) return this.#begin();
    this.#waiting = this.#afterRunning();
    return this.#waiting;
  }

  get isRunning(): boolean {
    return this.#running !== undefined;
  }

  /** Resolves when nothing runs and nothing waits, however the turns ended. */
  async idle(): Promise<void> {
    for (let turn = this.#waiting ?? this.#running; turn !== undefined; turn = this.#waiting ?? this.#running) {
      await turn.catch(() => undefined);
    }
  }

  async #begin(): Promise<void> {
    // Marked as running before the work starts, so that even work that asks for a turn at once waits for its own end.
    const turn = Promise.resolve()
      .then(this.#work)
      .finally(() => {
        this.#running = undefined;
      });
    this.#running = turn;
    await turn;
  }

  async #afterRunning(): Promise<void> {
    await this.#running?.catch(() => undefined);
    this.#waiting = undefined;
    await this.#begin();
  }
}
