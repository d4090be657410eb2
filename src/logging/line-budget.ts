/**
 * Bounds the lines that one change can cause: a Service may have thousands of ports and addresses, and lines about each of them
 * would fill the disk. All lines with the same message share a budget; messages are constant sentences.
 */
import type { LogRecord } from "./log-format.ts";

/** The most lines of one message in each window. */
const MOST_LINES = 100;
const WINDOW_MS = 60_000;
/** Only messages with variable parts could be more. */
const MOST_MESSAGES = 1000;

export class LineBudget {
  /** By severity and message. */
  readonly #windows = new Map<string, { readonly sinceMs: number; lines: number }>();

  /** @returns what to print for a record: it, it and a line about those that are left out, or nothing. */
  take(record: LogRecord): readonly LogRecord[] {
    const { severity, verbosity, message, facts, timestampMs } = record;
    // Verbose lines are wanted, except those that the API server's objects cause one by one.
    if (severity === "info" && verbosity > 0 && facts.object === undefined) return [record];
    const key = `${severity} ${message}`;
    const before = this.#windows.get(key);
    const ageMs = timestampMs - (before?.sinceMs ?? Number.NEGATIVE_INFINITY);
    const isNew = before === undefined || ageMs >= WINDOW_MS || ageMs < 0;
    const window = isNew ? { sinceMs: timestampMs, lines: 0 } : before;
    if (isNew) {
      if (this.#windows.size >= MOST_MESSAGES) this.#windows.clear();
      this.#windows.set(key, window);
    }
    window.lines += 1;
    const leftOut = isNew ? (before?.lines ?? 0) - MOST_LINES : 0;
    const told = leftOut > 0 ? [about(record, "Lines like the next were left out", { count: leftOut })] : [];
    if (window.lines < MOST_LINES) return [...told, record];
    const more = "Lines like the last are left out for up to a minute";
    return window.lines === MOST_LINES ? [record, about(record, more, {})] : [];
  }
}

function about(record: LogRecord, message: string, facts: LogRecord["facts"]): LogRecord {
  return { ...record, message, facts, error: undefined };
}
