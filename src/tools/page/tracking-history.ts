/** How full connection tracking is, now and over the last day, by the minute. */

import type { StatusReport } from "../../agent/daemon/inspect-report.ts";
import { systemClock } from "../../async/clock.ts";
import { sharedReading } from "../../async/shared-reading.ts";
import type { ConntrackTable } from "../../kernel/conntrack/conntrack.ts";
import { statisticsNotes } from "../../kernel/conntrack/statistics.ts";
import type { FrontAnswer } from "./answers.ts";

const EVERY_MS = 60_000;
const KEPT = 24 * 60;
/** More points than that are no clearer picture. */
const MAX_POINTS = 240;
/** Several pages ask at the same time. */
const FRESH_MS = 1_900;

export class TrackingHistory {
  readonly #table: ConntrackTable | undefined;
  readonly #samples: [sinceMs: number, entries: number][] = [];
  /** What the kernel has said lately; undefined if it does not. */
  readonly now = sharedReading(() => this.#read(), FRESH_MS, systemClock);

  /** @param signal ends it. */
  constructor(table: ConntrackTable | undefined, signal: AbortSignal) {
    this.#table = table;
    if (table?.statistics === undefined) return;
    void this.now();
    const timer = setInterval(() => void this.now(), EVERY_MS).unref();
    signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  }

  async #read(): Promise<StatusReport["connectionTracking"]> {
    const statistics = await this.#table?.statistics?.().catch(() => undefined);
    if (statistics === undefined) return undefined;
    const { entries } = statistics;
    const last = this.#samples.at(-1);
    if (last === undefined || Date.now() - last[0] >= EVERY_MS) this.#samples.push([Date.now(), entries]);
    else last[1] = Math.max(last[1], entries);
    if (this.#samples.length > KEPT) this.#samples.shift();
    return { ...statistics, notes: statisticsNotes(statistics) };
  }

  /** The most of each minute, or of several. */
  get points(): FrontAnswer["tracked"] {
    const step = Math.ceil(this.#samples.length / MAX_POINTS);
    return this.#samples.flatMap(([sinceMs], index) => {
      if (index % step !== 0) return [];
      return [[sinceMs, Math.max(...this.#samples.slice(index, index + step).map(([, entries]) => entries))] as const];
    });
  }
}
