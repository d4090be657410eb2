/** Retries work that may fail for a while. */
import { setTimeout as sleep } from "node:timers/promises";
import { stretched } from "../../../../testkit/support/patience.ts";

const LIMIT_MS = 5000;
const PAUSE_MS = 20;

/** @throws the work's last error, if it still fails at the time limit. */
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
