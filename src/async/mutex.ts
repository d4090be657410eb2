/** Lets one operation at a time use something, in the order of asking. */
export class Mutex {
  #tail: Promise<unknown> = Promise.resolve();

  /**
   * Runs `operation` when all earlier ones have settled.
   *
   * @param signal an abort before its turn comes rejects without running it; later it is the operation's affair.
   */
  run<T>(operation: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const turn = this.#tail.then(() => {
      signal?.throwIfAborted();
      return operation();
    });
    this.#tail = turn.catch(() => undefined);
    return turn;
  }
}
