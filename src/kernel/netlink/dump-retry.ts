/** Repeats dumps that the kernel reports as interrupted. */
import { isInterrupted } from "./errors.ts";

/** Attempts in total, as upstream makes for conntrack (reference sync.md §13.2). */
const ATTEMPTS = 5;

/**
 * Runs `dumpOnce`, which must begin with an empty result, until it is not interrupted, at most 5 times without delay.
 *
 * @returns whether the last attempt was complete; otherwise its partial result is what there is. Other errors are thrown.
 */
export async function dumpWithRetry(dumpOnce: () => Promise<void>): Promise<boolean> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    try {
      await dumpOnce();
      return true;
    } catch (error) {
      if (!isInterrupted(error)) throw error;
    }
  }
  return false;
}
