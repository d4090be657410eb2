/** A flag that a loop can sleep on. */
export class Wakeup {
  #isSet = false;
  #wake: (() => void) | undefined;

  /** Ends the current wait, or the next one at once. */
  notify(): void {
    this.#isSet = true;
    this.#wake?.();
  }

  /** Forgets notifications up to now. */
  clear(): void {
    this.#isSet = false;
  }

  /** Waits for a notification, the time limit or the signal. @returns whether it was notified. */
  async wait(limitMs: number, signal: AbortSignal): Promise<boolean> {
    if (!this.#isSet && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const done = (): void => {
          clearTimeout(timer);
          signal.removeEventListener("abort", done);
          this.#wake = undefined;
          resolve();
        };
        const timer = setTimeout(done, limitMs);
        signal.addEventListener("abort", done, { once: true });
        this.#wake = done;
      });
    }
    return this.#isSet;
  }
}
