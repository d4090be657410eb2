/** What a busy machine adds to the duration of something: waiting for a processor. For limits that the program promises. */
import { readFileSync } from "node:fs";

/**
 * How long a process's main thread has been ready to run while another had the processor, in milliseconds since its
 * start. 0 if the kernel does not say (`/proc/PID/schedstat`), and for a process that is gone.
 */
export function waitedForProcessorMs(pid: number | "self"): number {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[1] ?? 0) / 1e6;
  } catch {
    return 0;
  }
}

/** A clock that stops while one of these processes waits for a processor. Read it while they exist. */
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

  /** Milliseconds since it was created, without the waits. */
  elapsedMs(): number {
    for (const [index, pid] of this.#pids.entries()) {
      const waited = waitedForProcessorMs(pid) - (this.#beforeMs[index] ?? 0);
      // For one that is gone, the last known wait counts.
      this.#waitedMs[index] = Math.max(this.#waitedMs[index] ?? 0, waited);
    }
    return performance.now() - this.#startMs - this.#waitedMs.reduce((sum, waited) => sum + waited, 0);
  }
}
