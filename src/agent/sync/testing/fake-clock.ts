/** A clock that moves only when a test says so. */

import { type Clock, sleepWith, type Timer } from "../../../async/clock.ts";
import { turnsTaken } from "../../../async/testing/test-yielder.ts";

interface PendingTimer {
  readonly dueMs: number;
  readonly callback: () => void;
}

/** Starts at `startMs` Unix time and at 0 monotonic; timers fire in the order they are due, ties in the order set. */
export class FakeClock implements Clock {
  readonly #startMs: number;
  readonly #timers = new Set<PendingTimer>();
  #elapsedMs = 0;

  constructor(startMs = Date.UTC(2026, 0, 1)) {
    this.#startMs = startMs;
  }

  now(): number {
    return this.#startMs + this.#elapsedMs;
  }

  monotonicMs(): number {
    return this.#elapsedMs;
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    const timer = { dueMs: this.#elapsedMs + Math.max(0, delayMs), callback };
    this.#timers.add(timer);
    return { cancel: () => void this.#timers.delete(timer) };
  }

  sleep(delayMs: number, signal: AbortSignal): Promise<void> {
    return sleepWith((ms, callback) => this.setTimer(ms, callback), delayMs, signal);
  }

  /** Number of pending timers: a stopped loop must leave 0. */
  get timerCount(): number {
    return this.#timers.size;
  }

  /** Runs everything that needs no time to pass, including computations that yield. */
  async settle(): Promise<void> {
    let before: number;
    do {
      before = turnsTaken();
      await new Promise<void>((resolve) => {
        setImmediate(resolve);
      });
    } while (turnsTaken() !== before);
  }

  /** Moves time forward, firing timers as they become due, each with its consequences settled before the next. */
  async advance(ms: number): Promise<void> {
    const untilMs = this.#elapsedMs + ms;
    await this.settle();
    for (let timer = this.#nextDue(untilMs); timer !== undefined; timer = this.#nextDue(untilMs)) {
      this.#timers.delete(timer);
      this.#elapsedMs = timer.dueMs;
      timer.callback();
      await this.settle();
    }
    this.#elapsedMs = untilMs;
  }

  #nextDue(untilMs: number): PendingTimer | undefined {
    let next: PendingTimer | undefined;
    for (const timer of this.#timers) {
      if (timer.dueMs <= untilMs && (next === undefined || timer.dueMs < next.dueMs)) next = timer;
    }
    return next;
  }
}
