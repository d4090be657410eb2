/**
 * What the reflectors of one node wait for together. While nothing answers they take turns, so that a node with four
 * watches knocks like one with a single watch; and what one of them finds out about the server's return, all know.
 *
 * How often is a matter of what knocking costs. Where nothing listens, a knock is a SYN that is refused or lost:
 * the pace stays the same, about 1.7 a second and node, and the server is found within a second of its return. What
 * accepts connections and does not answer has work with each, and is left alone for longer and longer.
 */
import type { Clock, Timer } from "../../../async/clock.ts";

/** Between two turns, times 1 to 2. */
const TURN_MS = 400;
/** The same at something that accepts connections and does not answer them, in the end. */
const LONGEST_TURN_MS = 5_000;
const TURN_FACTOR = 2;
/** Those who are woken come back within this time, and so do the nodes of a cluster. */
const WAKE_SPREAD_MS = 500;
/** Answers wake resting reflectors at most this often: a server may serve one resource and refuse another forever. */
const WAKE_GAP_MS = 5_000;

export class Recovery {
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #queue = new Set<() => void>();
  readonly #resting = new Set<AbortController>();
  #turnTimer: Timer | undefined;
  #slowTurnMs = TURN_MS;
  #wokeAtMs = Number.NEGATIVE_INFINITY;

  /** @param random gives numbers from 0 up to 1. */
  constructor(clock: Clock, random: () => number) {
    this.#clock = clock;
    this.#random = random;
  }

  /** A request got a proper answer: nothing waits for the server any longer. */
  answered(): void {
    this.#slowTurnMs = TURN_MS;
    this.#turnTimer?.cancel();
    this.#turnTimer = undefined;
    const wake = (callback: () => void): void => void this.#clock.setTimer(WAKE_SPREAD_MS * this.#random(), callback);
    for (const take of this.#queue) wake(take);
    const nowMs = this.#clock.monotonicMs();
    if (this.#resting.size === 0 || nowMs - this.#wokeAtMs < WAKE_GAP_MS) return;
    this.#wokeAtMs = nowMs;
    for (const rest of this.#resting) wake(() => rest.abort());
  }

  /**
   * Waits, after a request that nothing answered, for this one's turn to try again, or for the server's return.
   *
   * @param isAbsent nothing took the request, so it cost nothing.
   */
  async turn(isAbsent: boolean, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const take = (): void => resolve();
    this.#queue.add(take);
    signal.addEventListener("abort", take);
    this.#arm(isAbsent);
    await promise;
    signal.removeEventListener("abort", take);
    this.#queue.delete(take);
    if (this.#queue.size > 0) return;
    this.#turnTimer?.cancel();
    this.#turnTimer = undefined;
  }

  /** Waits after an answer that was a refusal. Ends sooner when the server has answered another, or `sooner` aborts. */
  async rest(delayMs: number, signal: AbortSignal, sooner?: AbortSignal): Promise<void> {
    const woken = new AbortController();
    this.#resting.add(woken);
    const ends = [signal, woken.signal, ...(sooner === undefined ? [] : [sooner])];
    await this.#clock.sleep(delayMs, AbortSignal.any(ends));
    this.#resting.delete(woken);
  }

  #arm(isAbsent: boolean): void {
    if (this.#turnTimer !== undefined) return;
    const stepMs = isAbsent ? TURN_MS : this.#slowTurnMs;
    this.#turnTimer = this.#clock.setTimer(stepMs * (1 + this.#random()), () => {
      this.#turnTimer = undefined;
      if (!isAbsent) this.#slowTurnMs = Math.min(LONGEST_TURN_MS, this.#slowTurnMs * TURN_FACTOR);
      const [first] = this.#queue;
      if (first === undefined) return;
      this.#queue.delete(first);
      first();
      // The reflector that has the turn may wait long for an answer: the next does not wait for that.
      if (this.#queue.size > 0) this.#arm(isAbsent);
    });
  }
}
