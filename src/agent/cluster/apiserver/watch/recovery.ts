/**
 * Coordinates how the reflectors of one node wait for the server. During an outage they take turns, so that a node with
 * four watches retries as often as one with a single watch; when one of them reaches the server, all of them know.
 *
 * An attempt that ends at once keeps the pace of about 1.7 attempts per second and node for as long as the outage lasts:
 * they notice the server within 0.7 s of its return. A server that accepts connections and says nothing has work with
 * each attempt, so the waits grow.
 */
import type { Clock, Timer } from "../../../../async/clock.ts";

/** The wait between two turns, plus up to {@link TURN_SPREAD_MS}. */
const TURN_MS = 500;
const TURN_SPREAD_MS = 200;
/** The longest wait, times 1 to 2, if the server accepts connections without answering. */
const LONGEST_TURN_MS = 5_000;
const TURN_FACTOR = 2;
/** Reflectors that are woken retry within this time, and so do the nodes of a cluster. */
const WAKE_SPREAD_MS = 200;
/** Responses wake resting reflectors at most this often: a server may serve one resource and always refuse another. */
const WAKE_GAP_MS = 5_000;

export class Recovery {
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #queue = new Set<() => void>();
  readonly #resting = new Set<AbortController>();
  #turn: { readonly isQuick: boolean; readonly timer: Timer } | undefined;
  #slowTurnMs = TURN_MS;
  #wokeAtMs = Number.NEGATIVE_INFINITY;
  /** How many watches are open. */
  watching = 0;

  /** @param random returns numbers in [0, 1). */
  constructor(clock: Clock, random: () => number) {
    this.#clock = clock;
    this.#random = random;
  }

  /** A request succeeded: wakes everything that waits for the server. */
  answered(): void {
    this.#slowTurnMs = TURN_MS;
    this.#disarm();
    const wake = (callback: () => void): void => void this.#clock.setTimer(WAKE_SPREAD_MS * this.#random(), callback);
    for (const take of this.#queue) wake(take);
    const nowMs = this.#clock.monotonicMs();
    if (this.#resting.size === 0 || nowMs - this.#wokeAtMs < WAKE_GAP_MS) return;
    this.#wokeAtMs = nowMs;
    for (const rest of this.#resting) wake(() => rest.abort());
  }

  /**
   * After a failed attempt, waits for the caller's turn to retry or for the server's return.
   *
   * @param isQuick the attempt ended at once.
   */
  async turn(isQuick: boolean, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const take = (): void => resolve();
    this.#queue.add(take);
    signal.addEventListener("abort", take);
    this.#arm(isQuick);
    await promise;
    signal.removeEventListener("abort", take);
    this.#queue.delete(take);
    if (this.#queue.size === 0) this.#disarm();
  }

  /** Waits after a refusal. Ends early if the server serves another request, or if `sooner` aborts. */
  async rest(delayMs: number, signal: AbortSignal, sooner?: AbortSignal): Promise<void> {
    const woken = new AbortController();
    this.#resting.add(woken);
    const ends = [signal, woken.signal, ...(sooner === undefined ? [] : [sooner])];
    await this.#clock.sleep(delayMs, AbortSignal.any(ends));
    this.#resting.delete(woken);
  }

  #arm(isQuick: boolean): void {
    if (this.#turn !== undefined && (this.#turn.isQuick || !isQuick)) return;
    this.#disarm();
    const random = this.#random();
    const delayMs = isQuick ? TURN_MS + TURN_SPREAD_MS * random : this.#slowTurnMs * (1 + random);
    const timer = this.#clock.setTimer(delayMs, () => {
      this.#turn = undefined;
      if (!isQuick) this.#slowTurnMs = Math.min(LONGEST_TURN_MS, this.#slowTurnMs * TURN_FACTOR);
      const [first] = this.#queue;
      if (first === undefined) return;
      this.#queue.delete(first);
      first();
      // The reflector whose turn it is may wait long for a response; the next one does not wait for that.
      if (this.#queue.size > 0) this.#arm(isQuick);
    });
    this.#turn = { isQuick, timer };
  }

  #disarm(): void {
    this.#turn?.timer.cancel();
    this.#turn = undefined;
  }
}
