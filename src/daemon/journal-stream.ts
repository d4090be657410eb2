/**
 * The journal as lines of JSON that go on: each a sync, or `{"missed": N}` where a reader was too slow. Nothing is kept for a
 * reader but its place.
 */
import type { ServerResponse } from "node:http";
import type { SyncJournal } from "../sync/journal/sync-journal.ts";
import type { SyncRecord } from "../sync/journal/sync-record.ts";

export type { SyncCause, SyncRecord } from "../sync/journal/sync-record.ts";

/** One line. */
export type JournalLine = SyncRecord | { readonly missed: number };

/** Lines that come within this time are written together. */
const GATHER_MS = 20;
/** Written at once; the rest waits until the reader has taken them. */
const AT_ONCE = 64;

interface JournalStreamOptions {
  /** How many records from before come first. */
  readonly last: number;
  /** Ends the stream. */
  readonly signal: AbortSignal;
}

/** Answers with the journal until the reader goes or the signal aborts. */
export function streamJournal(
  journal: SyncJournal,
  response: ServerResponse,
  { last, signal }: JournalStreamOptions,
): void {
  let place = Math.max(0, journal.last - (Number.isFinite(last) ? Math.max(0, last) : 0));
  let timer: NodeJS.Timeout | undefined;
  const write = (): void => {
    timer = undefined;
    if (response.writableNeedDrain) return;
    const { records, missed } = journal.after(place, AT_ONCE);
    const lines: JournalLine[] = missed > 0 ? [{ missed }, ...records] : [...records];
    place += missed + records.length;
    if (lines.length > 0) response.write(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    if (place < journal.last) gather();
  };
  const gather = (): void => {
    timer ??= setTimeout(write, GATHER_MS);
  };
  const unsubscribe = journal.subscribe(gather);
  const end = (): void => void response.end();
  response.on("drain", gather);
  response.on("close", () => {
    clearTimeout(timer);
    unsubscribe();
    signal.removeEventListener("abort", end);
  });
  signal.addEventListener("abort", end, { once: true });
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  // The reader knows now that it is heard, also when nothing happens.
  response.flushHeaders();
  write();
}
