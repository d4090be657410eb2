/** Limits the share of time spent on comparing the kernel with the wanted state. */

/** A share of 1/20: after a long check, rest for this many times its duration. */
const REST_FACTOR = 19;
/** A share of 1/5 if every period needs a check: on a busy host even a short one takes long. */
const LEAST_REST_FACTOR = 4;

/**
 * How long to wait after a check of the kernel, in milliseconds.
 *
 * @param elapsedMs the duration of the check. @param periodMs how often there should be one even if it takes long.
 */
export function restAfterLook(elapsedMs: number, periodMs: number): number {
  return Math.min(REST_FACTOR * elapsedMs, Math.max(LEAST_REST_FACTOR * elapsedMs, periodMs));
}
