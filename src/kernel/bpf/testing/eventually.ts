/** Repeats what may fail for a while. */
import { setTimeout as sleep } from "node:timers/promises";
import { stretched } from "../../../../testkit/support/patience.ts";

const LIMIT_MS = 5000;
const PAUSE_MS = 20;

/** @throws what the work throws, when it still does at the end of the limit. */
export async function eventually<T>(work: () => T): Promise<T> {
  const start = performance.now();
  for (;;) {
    try {
      return work();
    } catch (error) {
      if (performance.now() - start > stretched(LIMIT_MS)) throw error;
      await sleep(PAUSE_MS);
    }
  }
}
