/**
 * Long computations yield to the rest of the process, above all to health and metrics requests
 * (docs/architecture.md: never block the loop for long): `if (isTurnDue()) await giveTurn(signal);` in the loop.
 */

/**
 * How long all computations together may block the event loop at a time. A garbage collection of the old generation may add to that,
 * in smaller steps if there are more turns: at 10 ms the longest turn of a first load of 30,000 Services was 40 to 80 ms, at 5 ms it is 18.
 */
const SLICE_MS = 5;

/** When to yield, and how; tests replace both. */
export const turnPolicy = { isDue: isSliceOver, turn: eventLoopTurn };

/** Whether computations have used up their slice of the event loop. */
export function isTurnDue(): boolean {
  return turnPolicy.isDue();
}

/** Gives the event loop one turn. Rejects with the signal's reason when it has aborted. */
export async function giveTurn(signal?: AbortSignal): Promise<void> {
  await turnPolicy.turn();
  signal?.throwIfAborted();
  beginSlice();
}

/** The end of the slice in this turn of the event loop; it begins at the first check, or when a computation resumes. */
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
 * Each turn resumes one computation: if it resumed all, an event (a request, the kernel's answer to a batch) would wait for all
 * their slices.
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

/**
 * A long computation in steps, between which other work may run: written once as a generator, run at once or in turns. Its state
 * must be consistent after every step. Yields after each step; returns the outcome.
 */
export type Steps<T> = Generator<undefined, T, undefined>;

/** Runs all steps without a pause. */
export function runAtOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** Runs the steps, yielding to the event loop between them when due. Rejects with the signal's reason once it has aborted. */
export async function runInTurns<T>(steps: Steps<T>, signal?: AbortSignal): Promise<T> {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    if (isTurnDue()) await giveTurn(signal);
  }
}
