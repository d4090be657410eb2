/** Tells when files under a path change, with the burst of events that one save causes folded into one. */
import { type FSWatcher, watch } from "node:fs";

const SETTLE_MS = 20;

/** A latch that a change sets and {@link ChangeSignal.wait} takes. Close it to stop watching. */
export class ChangeSignal {
  readonly #watcher: FSWatcher;
  #changedAt: number | undefined;
  #wake: (() => void) | undefined;
  /** Called at every change, before the waiting side is woken. */
  onChange: () => void = () => {};

  constructor(path: string) {
    this.#watcher = watch(path, { recursive: true }, () => {
      this.#changedAt ??= Date.now();
      this.onChange();
      setTimeout(() => this.#wake?.(), SETTLE_MS);
    });
    // A watched folder may vanish; reading it again then says so.
    this.#watcher.on("error", () => {});
  }

  /**
   * Waits for a change, the time-out or the signal.
   *
   * @returns when the first change since the last call came (Unix milliseconds), or `undefined`.
   */
  async wait(timeoutMs: number, signal: AbortSignal): Promise<number | undefined> {
    if (this.#changedAt === undefined && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(done, timeoutMs);
        function done(): void {
          clearTimeout(timer);
          signal.removeEventListener("abort", done);
          resolve();
        }
        this.#wake = done;
        signal.addEventListener("abort", done);
      });
      this.#wake = undefined;
    }
    const changedAt = this.#changedAt;
    this.#changedAt = undefined;
    return changedAt;
  }

  close(): void {
    this.#watcher.close();
  }
}
