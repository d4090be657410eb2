/** The share of time for comparing the kernel with the wanted state. */

/** One part in twenty: after a look that took long, this many times as long without one. */
const REST_FACTOR = 19;
/** One part in five where each period needs a look: on a busy host even a short one takes long. */
const LEAST_REST_FACTOR = 4;

/**
 * How long to wait after a look at the kernel, in milliseconds.
 *
 * @param elapsedMs how long it took. @param periodMs how often there should be one, though it takes long.
 */
export function restAfterLook(elapsedMs: number, periodMs: number): number {
  return Math.min(REST_FACTOR * elapsedMs, Math.max(LEAST_REST_FACTOR * elapsedMs, periodMs));
}
