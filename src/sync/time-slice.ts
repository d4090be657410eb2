/** Long computations give way to health and metrics requests (docs/architecture.md: never block the loop for long). */

/** How long a computation may hold the event loop at a stretch. */
const SLICE_MS = 10;

/** Ask {@link TimeSlice.isOver} in the loop; when it is, await {@link TimeSlice.next}. */
export class TimeSlice {
  #endMs = performance.now() + SLICE_MS;

  isOver(): boolean {
    return performance.now() >= this.#endMs;
  }

  /** Gives the event loop one turn and begins another slice. Rejects with the signal's reason when it has aborted. */
  async next(signal: AbortSignal): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    signal.throwIfAborted();
    this.#endMs = performance.now() + SLICE_MS;
  }
}
