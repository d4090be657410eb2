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
