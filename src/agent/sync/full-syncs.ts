/** When everything is compared: after an hour, and ever more rarely while parts stay rejected. */
import { formatMs } from "../../text/duration.ts";
import type { ProxierOptions } from "./proxier-options.ts";

const HOUR_MS = 3_600_000;

export class FullSyncs {
  /** The longest time between two. */
  readonly mostMs: number;
  readonly #retryMs: number;
  /** Monotonic. */
  #dueMs = Number.NEGATIVE_INFINITY;
  /** How long the next one waits after one that left rejected parts; 0: the last one left none. */
  #restMs = 0;

  /** @throws RangeError when `minSyncPeriod` is longer than the time between full syncs. */
  constructor({ minMs, syncMs, fullMs = HOUR_MS }: ProxierOptions["periods"]) {
    this.mostMs = fullMs;
    this.#retryMs = syncMs;
    if (minMs <= fullMs) return;
    const most = `${formatMs(fullMs)}, after which all rules are written in any case`;
    throw new RangeError(`minSyncPeriod is ${formatMs(minMs)}: it must be at most ${most}`);
  }

  isDue(nowMs: number): boolean {
    return nowMs >= this.#dueMs;
  }

  /** Notes that one has ended. The backend itself retries rejected parts: they are no reason to rewrite everything. */
  done(nowMs: number, isComplete: boolean): void {
    const restMs = Math.min(this.#restMs * 2 || this.#retryMs, this.mostMs);
    this.#restMs = isComplete ? 0 : restMs;
    this.#dueMs = nowMs + (isComplete ? this.mostMs : restMs);
  }
}
