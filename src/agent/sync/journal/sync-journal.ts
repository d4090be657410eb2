/**
 * The journal: the last syncs of the process, in a ring buffer of fixed size. Readers keep a position and are notified
 * of new records; a slow reader misses what is overwritten, at no cost to the process. Repairs and refusals are counted for a day.
 */
import { isRepair, type SyncRecord } from "./sync-record.ts";

/** 330 kB if every sync has one cause, 570 kB if each has as many as are kept. */
const KEPT_SYNCS = 512;

/** Repairs and refusals are counted by the minute for so long. */
const COUNTED_MINUTES = 24 * 60;
const MINUTE_MS = 60_000;

/** What a reader gets. */
interface JournalPart {
  readonly records: readonly SyncRecord[];
  /** Number of records between the reader's position and the first of `records`. */
  readonly missed: number;
}

export class SyncJournal {
  readonly #ring: SyncRecord[] = [];
  readonly #capacity: number;
  readonly #listeners = new Set<() => void>();
  #last = 0;
  /** By minutes since 1970, oldest first; those without any are left out. */
  readonly #minutes = new Map<number, { repairs: number; refusals: number }>();
  readonly #startedMs: number;

  constructor(capacity = KEPT_SYNCS, startedMs = Date.now()) {
    this.#capacity = capacity;
    this.#startedMs = startedMs;
  }

  /** Syncs that repaired, and syncs that were refused or failed, since the start or in 24 hours, whichever is shorter. */
  lately(nowMs = Date.now()): { readonly repairs: number; readonly refusals: number; readonly sinceMs: number } {
    const sinceMs = Math.max(this.#startedMs, nowMs - COUNTED_MINUTES * MINUTE_MS);
    const sum = { repairs: 0, refusals: 0, sinceMs };
    for (const [minute, { repairs, refusals }] of this.#minutes) {
      if (minute < Math.floor(sinceMs / MINUTE_MS)) continue;
      sum.repairs += repairs;
      sum.refusals += refusals;
    }
    return sum;
  }

  #count(record: Omit<SyncRecord, "number">): void {
    const { endedMs, result } = record;
    if (!isRepair(record) && result === "done") return;
    const minute = Math.floor(endedMs / MINUTE_MS);
    const counts = this.#minutes.get(minute) ?? { repairs: 0, refusals: 0 };
    if (isRepair(record)) counts.repairs += 1;
    if (result !== "done") counts.refusals += 1;
    this.#minutes.set(minute, counts);
    for (const old of this.#minutes.keys()) if (old <= minute - COUNTED_MINUTES) this.#minutes.delete(old);
  }

  /** The number of the newest record; 0 before the first. */
  get last(): number {
    return this.#last;
  }

  /** Number of subscribers. */
  get readers(): number {
    return this.#listeners.size;
  }

  add(record: Omit<SyncRecord, "number">): void {
    this.#last += 1;
    this.#ring[this.#last % this.#capacity] = { number: this.#last, ...record };
    this.#count(record);
    for (const listener of this.#listeners) listener();
  }

  /** The records after this number, oldest first, at most `limit` of them. A number not reached yet counts as 0. */
  after(number: number, limit = this.#capacity): JournalPart {
    const place = number > this.#last ? 0 : Math.max(0, number);
    const first = Math.max(place + 1, this.#last - this.#capacity + 1);
    const records: SyncRecord[] = [];
    for (let next = first; next <= this.#last && records.length < limit; next += 1) {
      const record = this.#ring[next % this.#capacity];
      if (record !== undefined) records.push(record);
    }
    return { records, missed: first - place - 1 };
  }

  /** @param listener called for each record; must be quick. @returns a function that ends the subscription. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}
