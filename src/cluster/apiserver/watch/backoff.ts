/** Waits after failures. */
import type { Clock } from "../../../async/clock.ts";

const FIRST_MS = 800;
const FACTOR = 2;
const LONGEST_MS = 30_000;
/** After this long without a failure, the next one counts as the first. */
const HEALTHY_AFTER_MS = 120_000;

/** How long to wait after a failure (reference operation.md §8.2): longer each time, at random, and short again once healthy. */
export class Backoff {
  readonly #clock: Clock;
  readonly #random: () => number;
  #nextMs = FIRST_MS;
  #lastMs = Number.NEGATIVE_INFINITY;

  /** @param random gives numbers from 0 up to 1. */
  constructor(clock: Clock, random: () => number) {
    this.#clock = clock;
    this.#random = random;
  }

  /** All is well again: the next failure counts as the first. */
  reset(): void {
    this.#nextMs = FIRST_MS;
  }

  /** The time to wait now, in milliseconds: up to twice the step, so that nodes do not come back all at once. */
  next(): number {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#lastMs > HEALTHY_AFTER_MS) this.#nextMs = FIRST_MS;
    this.#lastMs = nowMs;
    const stepMs = this.#nextMs;
    this.#nextMs = Math.min(LONGEST_MS, stepMs * FACTOR);
    return stepMs * (1 + this.#random());
  }
}
