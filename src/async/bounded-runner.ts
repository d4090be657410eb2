/**
 * Runs one piece of work on request, with a minimum interval, retries and a periodic run: reference sync.md §12.1.
 * Requests coalesce; all periods are measured from the end of a run.
 */
import type { Clock } from "./clock.ts";

export interface RunnerPeriods {
  /** Minimum time from the end of a run to the start of the next. */
  readonly minMs: number;
  /** Time from the end of a failed run to its retry; never more than `maxMs`. */
  readonly retryMs: number;
  /** Time from the end of a run to the next if none is requested. */
  readonly maxMs: number;
}

interface BoundedRunnerOptions {
  readonly periods: RunnerPeriods;
  readonly clock: Clock;
  /** Called after each run: the minimum time to the next one, if longer than `minMs`. @default 0 */
  readonly restMs?: () => number;
  /** The work; runs never overlap. Throwing or rejecting means failure; the work itself reports the error. */
  readonly work: () => Promise<void> | void;
}

export class BoundedRunner {
  readonly #options: BoundedRunnerOptions;
  readonly #retryMs: number;
  readonly #turns: SharedTurns;
  #isStarted = false;
  #isRequested = false;
  /** Monotonic time of the next run without a request. */
  #nextMs = Number.POSITIVE_INFINITY;
  /** Ends the loop's current wait. */
  #endWait: (() => void) | undefined;
  /** Whether requests end that wait, too: not in the pause after a run. */
  #isWakeable = false;

  /** @throws RangeError when `maxMs` is below `minMs` or a period is negative or not a number. */
  constructor(options: BoundedRunnerOptions) {
    const { minMs, retryMs, maxMs } = options.periods;
    for (const [name, value] of Object.entries(options.periods)) {
      if (!(value >= 0)) throw new RangeError(`runner period ${name} is ${value}: it must be 0 or more milliseconds`);
    }
    if (maxMs < minMs) {
      throw new RangeError(`runner period maxMs (${maxMs}) is below minMs (${minMs}): raise maxMs or lower minMs`);
    }
    this.#options = options;
    this.#retryMs = Math.min(retryMs, maxMs);
    this.#turns = new SharedTurns(options.work);
  }

  get isRunning(): boolean {
    return this.#turns.isRunning;
  }

  /** Requests a run: at once, after the cooldown, or when the loop starts. Never blocks; requests coalesce. */
  request(): void {
    this.#isRequested = true;
    this.#wake();
  }

  /**
   * Runs without waiting for a period or for the loop to start, but after a run in progress. It covers earlier requests; if it
   * fails, they are made again, and the loop retries after `retryMs` unless a run of the loop ends before that.
   *
   * @param onEnd called when it is over, however it ended.
   */
  runNow(onEnd: () => void = () => {}): void {
    const wasRequested = this.#isRequested;
    this.#isRequested = false;
    this.#turns.take().then(onEnd, () => {
      if (wasRequested) this.request();
      this.#nextMs = Math.min(this.#nextMs, this.#options.clock.monotonicMs() + this.#retryMs);
      this.#wake();
      onEnd();
    });
  }

  /**
   * Runs the loop until the signal aborts, then waits for a run in progress, even one that the loop did not start. Rejects only if
   * called a second time.
   */
  async run(signal: AbortSignal): Promise<void> {
    if (this.#isStarted) throw new Error("the runner's loop was started twice");
    this.#isStarted = true;
    const { periods } = this.#options;
    this.#nextMs = Math.min(this.#nextMs, this.#options.clock.monotonicMs() + periods.maxMs);
    // One listener for all waits: under a stream of requests there are hundreds a second.
    const end = (): void => this.#endWait?.();
    signal.addEventListener("abort", end, { once: true });
    while (!signal.aborted) {
      await this.#untilDue(signal);
      if (signal.aborted) break;
      this.#isRequested = false;
      let delayMs = periods.maxMs;
      try {
        await this.#turns.take();
      } catch {
        delayMs = this.#retryMs;
      }
      this.#nextMs = this.#options.clock.monotonicMs() + delayMs;
      if (!signal.aborted) await this.#wait(Math.max(periods.minMs, this.#options.restMs?.() ?? 0), false);
    }
    signal.removeEventListener("abort", end);
    await this.#turns.idle();
  }

  async #untilDue(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && !this.#isRequested) {
      const leftMs = this.#nextMs - this.#options.clock.monotonicMs();
      if (leftMs <= 0) return;
      await this.#wait(leftMs, true);
    }
  }

  /** @param isWakeable whether requests end the wait. */
  async #wait(delayMs: number, isWakeable: boolean): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#isWakeable = isWakeable;
    this.#endWait = resolve;
    const timer = this.#options.clock.setTimer(delayMs, resolve);
    await promise;
    this.#endWait = undefined;
    timer.cancel();
  }

  #wake(): void {
    if (this.#isWakeable) this.#endWait?.();
  }
}

/**
 * One piece of work that several callers request; its turns never overlap. A caller that asks during a turn waits for the
 * next one, which it shares with all callers that ask before that turn begins.
 */
export class SharedTurns {
  readonly #work: () => Promise<void> | void;
  #running: Promise<void> | undefined;
  #waiting: Promise<void> | undefined;

  constructor(work: () => Promise<void> | void) {
    this.#work = work;
  }

  /** Takes a turn that begins now, or when the current one ends; settles as that turn does. */
  take(): Promise<void> {
    if (this.#waiting !== undefined) return this.#waiting;
    if (this.#running === undefined) return this.#begin();
    this.#waiting = this.#running
      .catch(() => undefined)
      .then(() => {
        this.#waiting = undefined;
        return this.#begin();
      });
    return this.#waiting;
  }

  get isRunning(): boolean {
    return this.#running !== undefined;
  }

  /** Resolves when nothing runs and nothing waits, however the turns ended. */
  async idle(): Promise<void> {
    for (let turn = this.#waiting ?? this.#running; turn !== undefined; turn = this.#waiting ?? this.#running) {
      await turn.catch(() => undefined);
    }
  }

  #begin(): Promise<void> {
    this.#running = this.#turn();
    return this.#running;
  }

  async #turn(): Promise<void> {
    // Begins once it counts as running: if the work asks for a turn at once, that turn waits for the work to end.
    await undefined;
    try {
      await this.#work();
    } finally {
      this.#running = undefined;
    }
  }
}
