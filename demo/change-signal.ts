/**
 * Detects changes of files under a path by polling several times a second: file events get lost, without a sign, when an
 * editor replaces a file while the watch on it is set up again.
 */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const LOOK_EVERY_MS = 100;

/** A latch that a change sets and {@link ChangeSignal.wait} resets. Close it to stop polling. */
export class ChangeSignal {
  readonly #path: string;
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;
  #changedAt: number | undefined;
  #wake: (() => void) | undefined;
  /** Called at every change, before {@link wait} returns. */
  onChange: () => void = () => {};

  constructor(path: string) {
    this.#path = path;
    this.#ended = this.#look();
  }

  /**
   * Waits for a change, the timeout or the signal.
   *
   * @returns the earliest possible time of the first change since the last call (Unix milliseconds), or `undefined`.
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

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#ended;
  }

  async #look(): Promise<void> {
    const { signal } = this.#stop;
    let lookedAt = Date.now();
    let before = await imprintOf(this.#path);
    while (!signal.aborted) {
      await sleep(LOOK_EVERY_MS, undefined, { signal }).catch(() => {});
      const now = Date.now();
      const imprint = await imprintOf(this.#path);
      if (imprint !== before) {
        this.#changedAt ??= lookedAt;
        this.onChange();
        this.#wake?.();
      }
      before = imprint;
      lookedAt = now;
    }
  }
}

/** Changes whenever a file is added, removed or written; unreadable files count as gone. */
async function imprintOf(path: string): Promise<string> {
  const names = await readdir(path, { recursive: true }).catch(() => [""]);
  const states = await Promise.all(
    names.sort().map(async (name) => {
      const found = await stat(join(path, name), { bigint: true }).catch(() => undefined);
      return found === undefined || found.isDirectory() ? "" : `${name} ${found.ino} ${found.size} ${found.mtimeNs}`;
    }),
  );
  return states.join("\n");
}
