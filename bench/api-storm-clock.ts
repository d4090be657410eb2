/** Simulated time for thousands of clients: timers fire in steps of 10 ms, and each step's consequences end before the next. */
import { type Clock, sleepWith, type Timer } from "../src/async/clock.ts";

const STEP_MS = 10;

export class SimulatedClock implements Clock {
  readonly #steps = new Map<number, (() => void)[]>();
  #step = 0;

  now(): number {
    return this.monotonicMs();
  }

  monotonicMs(): number {
    return this.#step * STEP_MS;
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    let isSet = true;
    const step = this.#step + Math.max(1, Math.ceil(delayMs / STEP_MS));
    const due = this.#steps.get(step) ?? [];
    due.push(() => {
      if (isSet) callback();
    });
    this.#steps.set(step, due);
    return {
      cancel: () => {
        isSet = false;
      },
    };
  }

  sleep(delayMs: number, signal: AbortSignal): Promise<void> {
    return sleepWith((ms, callback) => this.setTimer(ms, callback), delayMs, signal);
  }

  async advance(ms: number): Promise<void> {
    await settled();
    for (const end = this.#step + ms / STEP_MS; this.#step < end; ) {
      const due = this.#steps.get(++this.#step) ?? [];
      this.#steps.delete(this.#step);
      for (const callback of due) callback();
      if (due.length > 0) await settled();
    }
  }
}

/** Waits for all promises that depend only on each other. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 2; turn++) {
    await new Promise<void>((resolve) => {
      setImmediate(resolve);
    });
  }
}
