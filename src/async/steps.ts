/**
 * A long computation in steps, between which others may run: written once as a generator, carried out at once or in turns. What
 * it changes must hold together after every step.
 */
import type { Yielder } from "./yielder.ts";

/** Yields after each step; returns the outcome. */
export type Steps<T> = Generator<undefined, T, undefined>;

/** Carries out all steps without a pause. */
export function runAtOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** Carries out the steps, and gives way between them when that is due. An abort is for the caller to look at. */
export async function runInTurns<T>(steps: Steps<T>, yielder: Yielder): Promise<T> {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    if (yielder.isDue()) await yielder.turn();
  }
}
