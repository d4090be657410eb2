/**
 * At the start, whose list is read first. Rules can be prepared for a Service and its EndpointSlices as soon as both are known
 * (`sync/head-start.ts`): of two lists that arrive side by side that is so at the end only, and of one after the other, from the
 * second's beginning. Both are asked for at once; the second waits in the connection's buffers.
 */
import type { Clock, Timer } from "../../../async/clock.ts";
import { Watchdog } from "./watchdog.ts";

/** How long the first list may be silent. It comes from the server's memory, and its pieces follow one another. */
const SILENCE_MS = 1_000;
/** How long the second waits at most: a server may end a watch whose events are not taken. */
const LIMIT_MS = 10_000;

export class ListOrder {
  readonly #first = Promise.withResolvers<void>();
  readonly #silence: Watchdog;
  readonly #limit: Timer;

  /** Time runs from now on. */
  constructor(clock: Clock) {
    this.#silence = new Watchdog(clock, SILENCE_MS, () => this.end());
    this.#limit = clock.setTimer(LIMIT_MS, () => this.end());
  }

  /** A piece of the first list has come. */
  alive(): void {
    this.#silence.alive();
  }

  /** The first list is whole, or no longer waited for. */
  end(): void {
    this.#silence.stop();
    this.#limit.cancel();
    this.#first.resolve();
  }

  /** Resolves when the second may be read; never rejects. */
  get turn(): Promise<void> {
    return this.#first.promise;
  }
}
