/** Long work on many objects gives way to whatever else the process has to do: health and metrics requests, above all. */

/** How long work may keep the event loop at a stretch. */
const SLICE_MS = 8;

/** Call {@link EventLoopSlice.breathe} every now and then, and await what it gives. */
export class EventLoopSlice {
  #endMs = performance.now() + SLICE_MS;

  /** A turn of the event loop when it is due, else nothing to wait for. */
  breathe(): Promise<void> | undefined {
    if (performance.now() < this.#endMs) return undefined;
    return new Promise((resolve) => {
      setImmediate(() => {
        this.#endMs = performance.now() + SLICE_MS;
        resolve();
      });
    });
  }
}
