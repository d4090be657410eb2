/**
 * A long computation in steps, between which others may run: written once as a generator, carried out at once or in turns. What
 * it changes must hold together after every step.
 */
import { giveTurn, isTurnDue } from "./turns.ts";

/** Yields after each step; returns the outcome. */
export type Steps<T> = Generator<undefined, T, undefined>;

/** Carries out all steps without a pause. */
export function runAtOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** Carries out the steps, and gives way between them when that is due. Rejects with the signal's reason when it has aborted. */
export async function runInTurns<T>(steps: Steps<T>, signal?: AbortSignal): Promise<T> {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    if (isTurnDue()) await giveTurn(signal);
  }
}
