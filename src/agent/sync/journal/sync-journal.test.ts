/** The journal's ring buffer: readers' positions, and what slow readers miss. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { SyncJournal } from "./sync-journal.ts";
import type { SyncRecord } from "./sync-record.ts";

const RECORD: Omit<SyncRecord, "number"> = {
  family: "IPv4",
  endedMs: 0,
  isFullSync: false,
  causes: [{ kind: "start" }],
  furtherCauses: 0,
  servicePorts: 0,
  stages: { waiting: 0, model: 0, rules: 0, kernel: null, after: 0 },
  written: null,
  result: "done",
  failures: [],
  furtherFailures: 0,
};

function journalWith(count: number, capacity: number): SyncJournal {
  const journal = new SyncJournal(capacity);
  for (let index = 0; index < count; index += 1) journal.add(RECORD);
  return journal;
}

const read = (journal: SyncJournal, after: number, limit?: number) => {
  const { records, missed } = journal.after(after, limit);
  return { numbers: records.map(({ number }) => number), missed };
};

test("a reader gets what came after its place, in order, as much as it takes", () => {
  const journal = journalWith(5, 10);
  assert.deepEqual(read(journal, 0), { numbers: [1, 2, 3, 4, 5], missed: 0 });
  assert.deepEqual(read(journal, 2, 2), { numbers: [3, 4], missed: 0 });
  assert.deepEqual(read(journal, 5), { numbers: [], missed: 0 });
});

test("what was overwritten before it was read is counted", () => {
  const journal = journalWith(25, 10);
  assert.deepEqual(read(journal, 3, 3), { numbers: [16, 17, 18], missed: 12 });
  assert.deepEqual(read(journal, 15, 1), { numbers: [16], missed: 0 });
});

test("a place that there has not been yet, as of a process before, is the beginning", () => {
  assert.deepEqual(read(journalWith(2, 10), 99), { numbers: [1, 2], missed: 0 });
});

test("listeners are told of each record until they end that", () => {
  const journal = new SyncJournal();
  let told = 0;
  const end = journal.subscribe(() => {
    told += 1;
  });
  journal.add(RECORD);
  end();
  journal.add(RECORD);
  assert.deepEqual([told, journal.last], [1, 2]);
});

test("repairs and refusals are counted for a day, or since the start, in at most one count a minute", () => {
  const hourMs = 3_600_000;
  const journal = new SyncJournal(2, 10 * hourMs);
  const addAt = (endedMs: number, changes: Partial<SyncRecord>) => journal.add({ ...RECORD, endedMs, ...changes });
  const repair = { causes: [{ kind: "repair", servicePorts: null, by: null }] } as const;
  assert.deepEqual(journal.lately(11 * hourMs), { repairs: 0, refusals: 0, sinceMs: 10 * hourMs });
  for (let index = 0; index < 5; index += 1) addAt(10 * hourMs + index, repair);
  addAt(11 * hourMs, { ...repair, result: "failed" });
  addAt(12 * hourMs, {});
  assert.deepEqual(journal.lately(12 * hourMs), { repairs: 6, refusals: 1, sinceMs: 10 * hourMs });
  assert.deepEqual(journal.lately(34.5 * hourMs), { repairs: 1, refusals: 1, sinceMs: 10.5 * hourMs });
  addAt(60 * hourMs, { result: "refused" });
  assert.deepEqual(journal.lately(60 * hourMs), { repairs: 0, refusals: 1, sinceMs: 36 * hourMs });
});
