/**
 * Long computations give way to what else the process has to do, health and metrics requests above all
 * (docs/architecture.md: never block the loop for long): `if (isTurnDue()) await giveTurn(signal);` in the loop.
 */

/**
 * How long computations may hold the event loop at a stretch, all of them together. A collection of the old generation may come on top, which
 * with more turns is made in more steps: with 10 ms the longest turn of a first load of 30,000 services was 40 to 80 ms, with 5 ms it is 18.
 */
const SLICE_MS = 5;

/** When a turn is due, and what it is; tests set both. */
export const turnPolicy = { isDue: isSliceOver, turn: eventLoopTurn };

/** Whether computations have held the event loop for long enough. */
export function isTurnDue(): boolean {
  return turnPolicy.isDue();
}

/** Gives the event loop one turn. Rejects with the signal's reason when it has aborted. */
export async function giveTurn(signal?: AbortSignal): Promise<void> {
  await turnPolicy.turn();
  signal?.throwIfAborted();
  beginSlice();
}

/** Of this turn of the event loop, from the first look on, or from where a computation goes on. */
let sliceEndMs: number | undefined;

function isSliceOver(): boolean {
  return performance.now() >= beginSlice();
}

/** Begins a slice, unless one has begun. @returns its end. */
function beginSlice(): number {
  if (sliceEndMs === undefined) {
    sliceEndMs = performance.now() + SLICE_MS;
    setImmediate(endSlice);
  }
  return sliceEndMs;
}

function endSlice(): void {
  sliceEndMs = undefined;
}

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
  endSlice();
  waiting.shift()?.();
  if (waiting.length > 0) setImmediate(nextGoesOn);
}
