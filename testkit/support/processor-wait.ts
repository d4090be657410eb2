/** What a busy machine adds to the time that something takes: waiting for a processor. For limits that are the program's promise. */
import { readFileSync } from "node:fs";

/**
 * How long the main thread of a process has been ready to run, and another had the processor, in milliseconds since its start. 0 where
 * the kernel does not say (`/proc/PID/schedstat`), and of a process that is gone.
 */
export function waitedForProcessorMs(pid: number | "self"): number {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[1] ?? 0) / 1e6;
  } catch {
    return 0;
  }
}

/** A clock that stands still while one of these processes waits for a processor. To be read while they are there. */
export class BusyClock {
  readonly #pids: readonly (number | "self")[];
  readonly #waitedMs: number[];
  readonly #beforeMs: readonly number[];
  readonly #startMs = performance.now();

  constructor(...pids: readonly (number | "self")[]) {
    this.#pids = pids;
    this.#beforeMs = pids.map(waitedForProcessorMs);
    this.#waitedMs = pids.map(() => 0);
  }

  /** Milliseconds since it was made, without the waits. */
  elapsedMs(): number {
    for (const [index, pid] of this.#pids.entries()) {
      const waited = waitedForProcessorMs(pid) - (this.#beforeMs[index] ?? 0);
      // One that is gone has waited as long as it was seen to.
      this.#waitedMs[index] = Math.max(this.#waitedMs[index] ?? 0, waited);
    }
    return performance.now() - this.#startMs - this.#waitedMs.reduce((sum, waited) => sum + waited, 0);
  }
}
