/** How unwilling the kernel should be to kill this process when memory is short: reference operation.md §10.3. */
import { writeFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "../logging/logger.ts";
import { messageOf } from "../logging/message-of.ts";

const TRIES = 2;
const PAUSE_MS = 100;

interface OomScoreDeps {
  readonly log: Logger;
  /** @default writes /proc/self/oom_score_adj */
  readonly write?: (text: string) => Promise<void>;
  /** @default a timer */
  readonly sleep?: (ms: number) => Promise<unknown>;
}

/**
 * Sets the score, −1000 to 1000. Tries twice, 100 ms apart; a failure is only logged, since lowering the score needs a
 * privilege that not every installation grants.
 */
export async function applyOomScore(score: number, deps: OomScoreDeps): Promise<void> {
  const write = deps.write ?? ((text: string) => writeFile("/proc/self/oom_score_adj", text));
  for (let attempt = 1; ; attempt++) {
    try {
      await write(String(score));
      return;
    } catch (error) {
      if (attempt === TRIES) {
        deps.log.v(2, "Failed to apply OOMScore", { err: messageOf(error) });
        return;
      }
    }
    await (deps.sleep ?? sleep)(PAUSE_MS);
  }
}
