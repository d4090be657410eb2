/** Time as a dependency: the clock that scheduling code uses, and the system's. */

/** A timer that has been set and not fired; cancelling a fired or cancelled timer does nothing. */
export interface Timer {
  cancel(): void;
}

export interface Clock {
  /** Unix time in milliseconds; may jump when the machine's clock is set. */
  now(): number;
  /** Milliseconds since an arbitrary start, with a fraction; never goes back. For durations and schedules. */
  monotonicMs(): number;
  /** Calls back once after `delayMs` (0 or less: as soon as the event loop turns). */
  setTimer(delayMs: number, callback: () => void): Timer;
  /** Resolves after `delayMs`, or as soon as the signal aborts; never rejects, so callers look at the signal. */
  sleep(delayMs: number, signal: AbortSignal): Promise<void>;
}

/** Node.js fires a longer timeout at once, so a long wait is split into several. */
export const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

function setSystemTimer(delayMs: number, callback: () => void): Timer {
  const dueMs = performance.now() + delayMs;
  let handle: NodeJS.Timeout;
  const arm = (leftMs: number): void => {
    handle =
      leftMs > LONGEST_TIMEOUT_MS
        ? setTimeout(() => arm(dueMs - performance.now()), LONGEST_TIMEOUT_MS)
        : setTimeout(callback, Math.max(0, leftMs));
  };
  arm(delayMs);
  return { cancel: () => clearTimeout(handle) };
}

/**
 * Builds {@link Clock.sleep} from a timer function; leaves neither timer nor abort listener behind.
 */
export function sleepWith(setTimer: Clock["setTimer"], delayMs: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const finish = (): void => {
      timer.cancel();
      signal.removeEventListener("abort", finish);
      resolve();
    };
    const timer = setTimer(delayMs, finish);
    signal.addEventListener("abort", finish, { once: true });
  });
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonicMs: () => performance.now(),
  setTimer: setSystemTimer,
  sleep: (delayMs, signal) => sleepWith(setSystemTimer, delayMs, signal),
};
