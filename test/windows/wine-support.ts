/** What tests under Wine share. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { stretched } from "../../testkit/support/patience.ts";
import type { WineProcess } from "../../testkit/wine/wine-host.ts";

/** Ends only what never comes: a gigabyte of Wine, unpacked just before, may be on its way to the disk, and a write waits for that. */
const LIMIT_MS = 100_000;
const PAUSE_MS = 100;
/** For one answer. */
const ANSWER_LIMIT_MS = 20_000;

/** Repeats an assertion until it holds. @param log shown when it never does. */
export async function until(what: string, assertion: () => Promise<void>, log: () => string): Promise<void> {
  const startMs = performance.now();
  for (;;) {
    try {
      return await assertion();
    } catch (error) {
      if (performance.now() - startMs > stretched(LIMIT_MS)) {
        throw new Error(`${what} did not come: ${String(error)}\n${log()}`, { cause: error });
      }
      await sleep(PAUSE_MS);
    }
  }
}

/** Waits for the end of a program. */
export async function assertEnded(run: WineProcess, wanted = 0): Promise<void> {
  const status = await run.ended;
  assert.equal(status, wanted, `it ended with ${status} instead of ${wanted}:\n${run.log}`);
}

/** The text of a page. Rejects when there is no answer. */
export async function get(url: string): Promise<string> {
  const signal = AbortSignal.timeout(stretched(ANSWER_LIMIT_MS));
  return await (await fetch(url, { signal })).text();
}
