import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { Recovery } from "./recovery.ts";

const never = new AbortController().signal;

/** Reflectors that keep retrying, and the times of their attempts. */
function knocking(count: number, isQuick: boolean, random = () => 0.5) {
  const clock = new FakeClock();
  const recovery = new Recovery(clock, random);
  const stop = new AbortController();
  const knocks: { readonly who: number; readonly atMs: number }[] = [];
  const run = async (who: number): Promise<void> => {
    while (!stop.signal.aborted) {
      await recovery.turn(isQuick, stop.signal);
      if (!stop.signal.aborted) knocks.push({ who, atMs: clock.monotonicMs() });
    }
  };
  const ended = Promise.all(Array.from({ length: count }, (_, who) => run(who)));
  return { clock, recovery, knocks, stop, ended };
}

test("where an attempt ends at once a node knocks every 0.5 to 0.7 s for as long as it takes, its watches in turns", async () => {
  for (const chance of [0, 0.999]) {
    const { clock, knocks, stop, ended } = knocking(4, true, () => chance);
    await clock.advance(600_000);
    const gaps = knocks.slice(1).map(({ atMs }, index) => atMs - (knocks[index]?.atMs ?? 0));
    assert.ok(Math.max(...gaps) <= 700, `longest gap ${Math.max(...gaps)} ms`);
    assert.ok(Math.min(...gaps) >= 500, `shortest gap ${Math.min(...gaps)} ms`);
    assert.deepEqual(
      knocks.slice(0, 8).map(({ who }) => who),
      [0, 1, 2, 3, 0, 1, 2, 3],
    );
    stop.abort();
    await ended;
    assert.equal(clock.timerCount, 0);
  }
});

test("what accepts connections and does not answer is left alone for up to ten seconds", async () => {
  const { clock, recovery, knocks, stop, ended } = knocking(4, false, () => 0.999);
  await clock.advance(600_000);
  const lastGap = (): number => (knocks.at(-1)?.atMs ?? 0) - (knocks.at(-2)?.atMs ?? 0);
  assert.ok(lastGap() > 9_000 && lastGap() <= 10_000, `${lastGap()} ms`);
  recovery.answered();
  const before = knocks.length;
  await clock.advance(500);
  assert.equal(knocks.length, before + 4, "all come back");
  await clock.advance(800);
  assert.equal(knocks.length, before + 5, "and begin again");
  stop.abort();
  await ended;
});

test("one that waits for an answer does not keep the others waiting", async () => {
  const clock = new FakeClock();
  const recovery = new Recovery(clock, () => 0);
  const turns: string[] = [];
  // The first never asks for another turn.
  void recovery.turn(true, never).then(() => turns.push("first"));
  void recovery.turn(true, never).then(() => turns.push("second"));
  await clock.advance(1_000);
  assert.deepEqual(turns, ["first", "second"]);
  assert.equal(clock.timerCount, 0);
});

test("an answer wakes everybody within 0.2 s, each at a time of its own", async () => {
  const clock = new FakeClock();
  const chances = [0, 0.25, 0.5, 0.75];
  const recovery = new Recovery(clock, () => chances.shift() ?? 0.9);
  const woken: number[] = [];
  for (let count = 0; count < 3; count++) {
    void recovery.rest(60_000, never).then(() => woken.push(clock.monotonicMs()));
  }
  await clock.advance(10_000);
  recovery.answered();
  await clock.advance(500);
  assert.deepEqual(woken, [10_000, 10_050, 10_100]);
  assert.equal(clock.timerCount, 0);
});

test("those who are refused are not woken by every answer that another gets", async () => {
  const clock = new FakeClock();
  const recovery = new Recovery(clock, () => 0);
  let attempts = 0;
  const stop = new AbortController();
  const refused = (async () => {
    for (; !stop.signal.aborted; attempts++) await recovery.rest(60_000, stop.signal);
  })();
  for (let tenth = 0; tenth < 600; tenth++) {
    recovery.answered();
    await clock.advance(100);
  }
  assert.ok(attempts >= 10 && attempts <= 13, `${attempts} attempts in a minute`);
  stop.abort();
  await refused;
});

test("a rest ends early when what it waits for has come, and at the end without an answer", async () => {
  const clock = new FakeClock();
  const recovery = new Recovery(clock, () => 0);
  const sooner = new AbortController();
  let isOver = false;
  void recovery.rest(60_000, never, sooner.signal).then(() => (isOver = true));
  await clock.advance(1_000);
  assert.ok(!isOver);
  sooner.abort();
  await clock.settle();
  assert.ok(isOver);
  let isLate = false;
  void recovery.rest(5_000, never).then(() => (isLate = true));
  await clock.advance(5_000);
  assert.ok(isLate);
});

test("what is refused at once after a silence does not wait for the end of the silence's turn", async () => {
  const { clock, recovery, stop, ended } = knocking(1, false, () => 0.999);
  await clock.advance(60_000);
  const startMs = clock.monotonicMs();
  const takenMs = recovery.turn(true, never).then(() => clock.monotonicMs() - startMs);
  await clock.advance(2_000);
  assert.ok((await takenMs) <= 1_400, `${await takenMs} ms`);
  stop.abort();
  await ended;
});
