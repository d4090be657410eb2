/** Runs operations one at a time, in the order of the calls. */
export class Mutex {
  #tail: Promise<unknown> = Promise.resolve();

  /**
   * Runs `operation` when all earlier ones have settled.
   *
   * @param signal an abort before the operation's turn rejects without running it; a later one is up to the operation.
   */
  run<T>(operation: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const turn = this.#tail.then(() => {
      signal?.throwIfAborted();
      return operation();
    });
    // Without the result, which may be large.
    this.#tail = turn.then(ignore, ignore);
    return turn;
  }
}

function ignore(): void {}
