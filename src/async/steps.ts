/**
 * A long computation in steps, between which other work may run: written once as a generator, run at once or in turns. Its state
 * must be consistent after every step.
 */
import { giveTurn, isTurnDue } from "./turns.ts";

/** Yields after each step; returns the outcome. */
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
