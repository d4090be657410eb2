import assert from "node:assert/strict";
import { test } from "node:test";
import { silentLogger } from "../../logging/logger.ts";
import { FakeClock } from "../sync/testing/fake-clock.ts";
import { collectWhenIdle, type IdleMemoryOptions } from "./idle-memory.ts";

const MB = 2 ** 20;

function setUp(heapMb: number, options: Partial<IdleMemoryOptions> = {}) {
  const clock = new FakeClock();
  const stop = new AbortController();
  const state = { heapMb, afterMb: 70, cpuMs: 0, collections: 0, releases: 0 };
  const ended = collectWhenIdle(
    {
      clock,
      log: silentLogger,
      heapBytes: () => state.heapMb * MB,
      cpuMs: () => state.cpuMs,
      collect() {
        state.collections++;
        state.heapMb = state.afterMb;
      },
      releaseFiles: () => void state.releases++,
      ...options,
    },
    stop.signal,
  );
  return { clock, stop, state, ended };
}

test("a heap that has grown is collected once the processor has been idle for ten seconds", async () => {
  const { clock, stop, state, ended } = setUp(120);
  await clock.advance(9_999);
  assert.equal(state.collections, 0);
  await clock.advance(1);
  assert.equal(state.collections, 1);
  await clock.advance(600_000);
  assert.equal(state.collections, 1, "nothing more to gain");
  state.heapMb = 95;
  await clock.advance(5_000);
  assert.equal(state.collections, 2);
  stop.abort();
  await ended;
  assert.equal(clock.timerCount, 0);
});

test("a busy program is left alone", async () => {
  const { clock, state } = setUp(120);
  for (let second = 0; second < 60; second += 5) {
    state.cpuMs += 101;
    await clock.advance(5_000);
  }
  assert.equal(state.collections, 0);
});

test("after the start's, small heaps and small gains are left alone", async () => {
  const { clock, state } = setUp(14);
  state.afterMb = 12;
  await clock.advance(10_000);
  assert.equal(state.collections, 1);
  state.heapMb = 60;
  await clock.advance(60_000);
  assert.equal(state.collections, 1);
});

test("each collection also gives back pages of files; where that fails the rest goes on", async () => {
  const { clock, stop, state, ended } = setUp(120);
  await clock.advance(10_000);
  assert.equal(state.releases, 1);
  stop.abort();
  await ended;

  const failing = setUp(120, {
    releaseFiles() {
      throw new Error("no /proc");
    },
  });
  await failing.clock.advance(10_000);
  failing.state.heapMb = 120;
  await failing.clock.advance(10_000);
  assert.equal(failing.state.collections, 2);
});

test("one that takes long is the last", async () => {
  const clock = new FakeClock();
  let collections = 0;
  const slow = { ...clock, setTimer: clock.setTimer.bind(clock), sleep: clock.sleep.bind(clock), now: () => 0 };
  let lateMs = 0;
  const { ended } = setUp(120, {
    clock: { ...slow, monotonicMs: () => clock.monotonicMs() + lateMs },
    collect() {
      collections++;
      lateMs += 501;
    },
  });
  for (let look = 0; look < 4; look++) await clock.advance(5_000);
  assert.equal(collections, 1);
  await clock.advance(60_000);
  assert.equal(collections, 1);
  await ended;
});

test("the engine's last resort frees what nothing refers to", async () => {
  const clock = new FakeClock();
  const stop = new AbortController();
  const heaps: number[] = [];
  let garbage: unknown[] | undefined = Array.from({ length: 2_000_000 }, (_, index) => ({ index }));
  const log = {
    ...silentLogger,
    v: (_level: number, _message: string, facts: Readonly<Record<string, unknown>> = {}) =>
      void heaps.push(Number(facts.heapMBBefore), Number(facts.heapMBAfter)),
  };
  const ended = collectWhenIdle({ clock, log, cpuMs: () => 0 }, stop.signal);
  assert.ok(garbage.length > 0);
  garbage = undefined;
  await clock.advance(10_000);
  const [before = 0, after = 0] = heaps;
  assert.ok(before - after > 40, `${before} MB before, ${after} MB after`);
  stop.abort();
  await ended;
});
