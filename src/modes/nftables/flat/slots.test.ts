import assert from "node:assert/strict";
import { test } from "node:test";
import { makeEndpoint } from "../../../model/testing/records.ts";
import { LEAST_SLOTS_EACH, MOST_EXACT, slotCount, slotOwners } from "./slots.ts";

const endpoint = (n: number) => makeEndpoint(`10.180.${n >> 8}.${n & 255}`, 8080);
const endpoints = (count: number) => Array.from({ length: count }, (_, n) => endpoint(n + 1));

function shares(count: number): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { ip, port } of slotOwners(endpoints(count))) {
    const text = `${ip}:${port}`;
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  return counts;
}

test("up to a number of endpoints each has one slot", () => {
  for (let count = 0; count <= MOST_EXACT; count += 1) {
    const all = endpoints(count);
    assert.equal(slotCount(count), count);
    assert.deepEqual(
      slotOwners(all)
        .map(({ ip, port }) => `${ip}:${port}`)
        .sort(),
      all.map(({ text }) => text).sort(),
    );
  }
});

test("endpoints whose draws are all the same still have a slot each", () => {
  const all = Array.from({ length: MOST_EXACT }, (_, n) => ({ ...endpoint(n + 1), text: "the same" }));
  assert.equal(new Set(slotOwners(all).map(({ ip }) => ip)).size, MOST_EXACT);
});

test("an endpoint that replaces another changes few slots, wherever it stands among them", () => {
  for (const [count, most] of [
    [2, 1.5],
    [5, 2.4],
    [16, 4],
    [MOST_EXACT, 7],
  ] as const) {
    let changed = 0;
    const trials = 200;
    for (let trial = 0; trial < trials; trial += 1) {
      const all = Array.from({ length: count + 1 }, (_, n) => endpoint(trial * 67 + n + 1));
      // As in a rolling update: the oldest address goes, and a later one comes.
      const before = slotOwners(all.slice(0, -1));
      const after = slotOwners(all.slice(1));
      changed += before.filter(({ ip }, slot) => ip !== after[slot]?.ip).length;
    }
    assert.ok(changed / trials <= most, `${changed / trials} of ${count} slots changed`);
  }
});

test("with more endpoints no share differs from an equal one by more than an eighth", () => {
  for (let count = MOST_EXACT + 1; count <= 200; count += 1) {
    const slots = slotCount(count);
    assert.ok(slots >= count * LEAST_SLOTS_EACH && slots < count * LEAST_SLOTS_EACH * 2, `${count}: ${slots}`);
    const counts = shares(count);
    assert.equal(counts.size, count);
    const equal = slots / count;
    for (const [text, share] of counts) {
      assert.ok(
        Math.abs(share - equal) < 1 && Math.abs(share / equal - 1) <= 1 / LEAST_SLOTS_EACH,
        `${text} of ${count}: ${share}`,
      );
    }
  }
});

test("of a thousand endpoints, one more or one less moves few slots of the others", () => {
  const all = endpoints(1000);
  const before = slotOwners(all);
  const after = slotOwners(all.toSpliced(500, 1));
  assert.equal(before.length, after.length);
  const gone = all[500] ?? assert.fail();
  const moved = before.filter((target, slot) => target.ip !== gone.ip && target.ip !== after[slot]?.ip).length;
  assert.ok(moved < before.length / 50, `${moved} of ${before.length} slots moved`);
});

test("with weights each cell has a slot, and a changed endpoint leaves most of the others' slots alone", () => {
  const all = endpoints(3).map((one, index) => ({ ...one, weight: [2, 9, 16][index] ?? 0 }));
  const counts = (slots: readonly { ip: string }[]) =>
    [...Map.groupBy(slots, ({ ip }) => ip).values()].map(({ length }) => length).sort((a, b) => a - b);
  assert.deepEqual(counts(slotOwners(all)), [2, 9, 16]);
  const many = endpoints(100).map((one, index) => ({ ...one, weight: 1 + (index % 16) }));
  assert.equal(
    slotOwners(many).length,
    many.reduce((sum, { weight }) => sum + weight, 0),
  );
  const [first = all[0], ...others] = all;
  const replaced = { ...endpoint(99), weight: first?.weight ?? 0 };
  const [before, after] = [slotOwners(all), slotOwners([...others, replaced])];
  assert.ok(before.filter(({ ip }, slot) => ip !== after[slot]?.ip).length <= 12);
});
