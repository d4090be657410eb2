import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { FakeClock } from "../agent/sync/testing/fake-clock.ts";
import { type Clock, systemClock } from "./clock.ts";

const LONG_MS = 2 ** 40;

for (const [name, clock] of [
  ["system", systemClock],
  ["fake", new FakeClock()],
] satisfies [string, Clock][]) {
  describe(`${name} clock`, () => {
    it("ends a sleep as soon as the signal aborts", async () => {
      const stop = new AbortController();
      const sleep = clock.sleep(LONG_MS, stop.signal);
      stop.abort();
      await sleep;
    });

    it("does not sleep at all when the signal was aborted before", async () => {
      await clock.sleep(LONG_MS, AbortSignal.abort());
    });

    it("does not fire a timer of years at once, nor a cancelled one", async () => {
      let fired = 0;
      const long = clock.setTimer(LONG_MS, () => fired++);
      clock.setTimer(0, () => fired++).cancel();
      await new Promise<void>((resolve) => {
        clock.setTimer(1, resolve);
        if (clock instanceof FakeClock) void clock.advance(1);
      });
      long.cancel();
      assert.equal(fired, 0);
    });
  });
}

describe("system clock", () => {
  it("fires no sooner than asked, by a clock of its own", async () => {
    for (const delayMs of [1, 40, 120]) {
      const begin = process.hrtime.bigint();
      await systemClock.sleep(delayMs, new AbortController().signal);
      const tookMs = Number(process.hrtime.bigint() - begin) / 1e6;
      // Node.js counts whole milliseconds, from the start of the current one.
      assert.ok(tookMs >= delayMs - 1, `${tookMs.toFixed(2)} ms instead of ${delayMs}`);
    }
  });
});

describe("fake clock", () => {
  it("fires timers in the order they are due, each at its own time", async () => {
    const clock = new FakeClock();
    const fired: [string, number][] = [];
    for (const [name, ms] of [
      ["late", 20],
      ["early", 10],
      ["never", 31],
    ] satisfies [string, number][]) {
      clock.setTimer(ms, () => fired.push([name, clock.monotonicMs()]));
    }
    await clock.advance(30);
    assert.deepEqual(fired, [
      ["early", 10],
      ["late", 20],
    ]);
    assert.equal(clock.monotonicMs(), 30);
  });
});
