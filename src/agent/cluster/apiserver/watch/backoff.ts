/** Exponential backoff with jitter. */
import type { Clock } from "../../../../async/clock.ts";

const FIRST_MS = 800;
const FACTOR = 2;
const LONGEST_MS = 30_000;
/** After this long without a failure, the backoff starts over. */
const HEALTHY_AFTER_MS = 120_000;

/** Waits after failures (reference operation.md §8.2): they grow, have jitter, and start over once healthy. */
export class Backoff {
  readonly #clock: Clock;
  readonly #random: () => number;
  #nextMs = FIRST_MS;
  #lastMs = Number.NEGATIVE_INFINITY;

  /** @param random returns numbers in [0, 1). */
  constructor(clock: Clock, random: () => number) {
    this.#clock = clock;
    this.#random = random;
  }

  /** Starts the backoff over. */
  reset(): void {
    this.#nextMs = FIRST_MS;
  }

  /** The next wait in milliseconds: up to twice the step, so that nodes do not retry all at once. */
  next(): number {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#lastMs > HEALTHY_AFTER_MS) this.#nextMs = FIRST_MS;
    this.#lastMs = nowMs;
    const stepMs = this.#nextMs;
    this.#nextMs = Math.min(LONGEST_MS, stepMs * FACTOR);
    return stepMs * (1 + this.#random());
  }
}
