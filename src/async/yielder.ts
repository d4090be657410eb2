/**
 * Long computations give way to what else the process has to do, health and metrics requests above all
 * (docs/architecture.md: never block the loop for long). When they do so is a dependency, so that tests can have it always and
 * never.
 */

/** `if (yielder.isDue()) await yielder.turn(signal);` in the loop. */
export interface Yielder {
  isDue(): boolean;
  /** Gives the event loop one turn. Rejects with the signal's reason when it has aborted. */
  turn(signal?: AbortSignal): Promise<void>;
}

/**
 * How long a computation may hold the event loop at a stretch. A collection of the old generation may come on top, which with more turns is
 * made in more steps: with 10 ms the longest turn of a first load of 30,000 services was 40 to 80 ms, with 5 ms it is 18.
 */
const SLICE_MS = 5;

/** Due when the event loop has had no turn from it for 5 ms. */
export class SliceYielder implements Yielder {
  readonly #signal: AbortSignal | undefined;
  #endMs = performance.now() + SLICE_MS;

  /** @param signal ends the computation at its next turn. */
  constructor(signal?: AbortSignal) {
    this.#signal = signal;
  }

  isDue(): boolean {
    return performance.now() >= this.#endMs;
  }

  async turn(signal = this.#signal): Promise<void> {
    await eventLoopTurn();
    signal?.throwIfAborted();
    this.#endMs = performance.now() + SLICE_MS;
  }
}

export const alwaysYield: Yielder = {
  isDue: () => true,
  async turn(signal) {
    await eventLoopTurn();
    signal?.throwIfAborted();
  },
};

export const neverYield: Yielder = {
  isDue: () => false,
  async turn(signal) {
    signal?.throwIfAborted();
  },
};

const waiting: (() => void)[] = [];

/**
 * One at a time goes on in each turn: if all did, what happened meanwhile (a request, the kernel done with a batch) would wait for the
 * slices of all.
 */
function eventLoopTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (waiting.push(resolve) === 1) setImmediate(nextGoesOn);
  });
}

function nextGoesOn(): void {
  waiting.shift()?.();
  if (waiting.length > 0) setImmediate(nextGoesOn);
}
