/** Wall-clock time with microseconds, which Date alone does not have. */

/**
 * Makes a clock that gives milliseconds since the epoch with a fraction. It counts on the monotonic clock and is set
 * again whenever it is more than a millisecond away from the system's, so that it follows clock steps.
 */
export function createWallClock(): () => number {
  let offset = Date.now() - performance.now();
  return () => {
    const coarse = Date.now();
    const fine = offset + performance.now();
    if (Math.abs(fine - coarse) <= 1) return fine;
    offset = coarse - performance.now();
    return coarse;
  };
}
