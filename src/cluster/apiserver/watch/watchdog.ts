/** Notices that something has stopped going on. */
import type { Clock, Timer } from "../../../async/clock.ts";

export class Watchdog {
  readonly #clock: Clock;
  readonly #limitMs: number;
  readonly #onSilence: () => void;
  #aliveAtMs: number;
  #timer: Timer;

  /** @param onSilence called once, when nothing was heard for the time, unless it is stopped before. */
  constructor(clock: Clock, limitMs: number, onSilence: () => void) {
    this.#clock = clock;
    this.#limitMs = limitMs;
    this.#onSilence = onSilence;
    this.#aliveAtMs = clock.monotonicMs();
    this.#timer = clock.setTimer(limitMs, () => this.#check());
  }

  /** Something arrived. Cheap enough to be called for every piece of a stream. */
  alive(): void {
    this.#aliveAtMs = this.#clock.monotonicMs();
  }

  stop(): void {
    this.#timer.cancel();
  }

  #check(): void {
    const leftMs = this.#aliveAtMs + this.#limitMs - this.#clock.monotonicMs();
    if (leftMs <= 0) this.#onSilence();
    else this.#timer = this.#clock.setTimer(leftMs, () => this.#check());
  }
}
