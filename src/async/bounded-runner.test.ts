import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { FakeClock } from "../agent/sync/testing/fake-clock.ts";
import { BoundedRunner, type RunnerPeriods } from "./bounded-runner.ts";

const PERIODS: RunnerPeriods = { minMs: 1000, retryMs: 5000, maxMs: 10_000 };

/** A runner under a fake clock: `starts` are the monotonic times of its runs; `outcome` may delay or fail a run. */
function setUp(periods: Partial<RunnerPeriods> = {}, outcome: (run: number) => Promise<void> | void = () => {}) {
  const clock = new FakeClock();
  const starts: number[] = [];
  const runner = new BoundedRunner({
    periods: { ...PERIODS, ...periods },
    clock,
    work: () => {
      starts.push(clock.monotonicMs());
      return outcome(starts.length);
    },
  });
  const stop = new AbortController();
  return { clock, starts, runner, stop, start: () => runner.run(stop.signal) };
}

function failOn(...runs: number[]): (run: number) => void {
  return (run) => {
    if (runs.includes(run)) throw new Error(`run ${run} fails`);
  };
}

describe("bounded runner: reference sync.md §12.1", () => {
  it("follows the timeline of the reference: 0, 1, 2, 12 seconds", async () => {
    const { clock, starts, runner, stop, start } = setUp();
    const loop = start();
    runner.request();
    await clock.advance(500);
    runner.request();
    await clock.advance(499);
    runner.request();
    await clock.advance(2);
    assert.deepEqual(starts, [0, 1000]);
    runner.request();
    await clock.advance(20_000);
    assert.deepEqual(starts, [0, 1000, 2000, 12_000]);
    stop.abort();
    await loop;
  });

  it("retries a failed run after the retry period without being asked", async () => {
    const { clock, starts, runner, start } = setUp({}, failOn(1));
    void start();
    runner.request();
    await clock.advance(15_000);
    assert.deepEqual(starts, [0, 5000, 15_000]);
  });

  it("forgets a retry when a run succeeds before it", async () => {
    const { clock, starts, runner, start } = setUp({}, failOn(1));
    void start();
    runner.request();
    await clock.advance(2000);
    runner.request();
    await clock.advance(12_000);
    assert.deepEqual(starts, [0, 2000, 12_000]);
  });

  it("moves the retry when a run that was asked for fails too", async () => {
    const { clock, starts, runner, start } = setUp({}, failOn(1, 2));
    void start();
    runner.request();
    await clock.advance(2000);
    runner.request();
    await clock.advance(5500);
    assert.deepEqual(starts, [0, 2000, 7000]);
  });

  it("never waits longer than the longest period for a retry", async () => {
    const { clock, starts, runner, start } = setUp({ retryMs: 60_000 }, failOn(1));
    void start();
    runner.request();
    await clock.advance(10_000);
    assert.deepEqual(starts, [0, 10_000]);
  });

  it("waits for the cooldown even when the retry is shorter", async () => {
    const { clock, starts, runner, start } = setUp({ retryMs: 10 }, failOn(1));
    void start();
    runner.request();
    await clock.advance(999);
    assert.deepEqual(starts, [0]);
    await clock.advance(1);
    assert.deepEqual(starts, [0, 1000]);
  });

  it("keeps a request from before the loop starts and runs it without delay", async () => {
    const { clock, starts, runner, start } = setUp();
    runner.request();
    await clock.advance(3000);
    assert.deepEqual(starts, []);
    void start();
    await clock.settle();
    assert.deepEqual(starts, [3000]);
  });

  it("makes its first run after the longest period without being asked", async () => {
    const { clock, starts, start } = setUp();
    void start();
    await clock.advance(9999);
    assert.deepEqual(starts, []);
    await clock.advance(1);
    assert.deepEqual(starts, [10_000]);
  });

  it("runs exactly once more, after the cooldown, for any number of requests during a run", async () => {
    const { clock, starts, runner, start } = setUp({}, (run) =>
      run === 1 ? clock.sleep(4000, new AbortController().signal) : undefined,
    );
    void start();
    runner.request();
    await clock.advance(2000);
    for (let i = 0; i < 5; i++) runner.request();
    await clock.advance(8000);
    assert.deepEqual(starts, [0, 5000]);
  });

  it("measures all periods from the end of a run", async () => {
    const { clock, starts, runner, start } = setUp({}, () => clock.sleep(4000, new AbortController().signal));
    void start();
    runner.request();
    await clock.advance(30_000);
    assert.deepEqual(starts, [0, 14_000, 28_000]);
  });

  it("postpones the periodic run when a request caused one", async () => {
    const { clock, starts, runner, start } = setUp();
    void start();
    await clock.advance(9000);
    runner.request();
    await clock.advance(10_000);
    assert.deepEqual(starts, [9000, 19_000]);
  });

  it("runs as often as asked without a shortest period", async () => {
    const { clock, starts, runner, start } = setUp({ minMs: 0 });
    void start();
    for (let i = 0; i < 3; i++) {
      runner.request();
      await clock.advance(1);
    }
    assert.deepEqual(starts, [0, 1, 2]);
  });

  it("rests as long as it is told after a run, when that is longer than the shortest period", async () => {
    const clock = new FakeClock();
    const starts: number[] = [];
    const rests = [1500, 200, 0];
    const runner = new BoundedRunner({
      periods: PERIODS,
      clock,
      restMs: () => rests.shift() ?? 0,
      work: () => void starts.push(clock.monotonicMs()),
    });
    void runner.run(new AbortController().signal);
    for (let n = 0; n < 40; n += 1) {
      runner.request();
      await clock.advance(100);
    }
    assert.deepEqual(starts, [0, 1500, 2500, 3500]);
  });

  it("ends without another run when stopped during the cooldown, and leaves no timer", async () => {
    const { clock, starts, runner, stop, start } = setUp();
    const loop = start();
    runner.request();
    await clock.advance(500);
    runner.request();
    stop.abort();
    await loop;
    await clock.advance(60_000);
    assert.deepEqual(starts, [0]);
    assert.equal(clock.timerCount, 0);
  });

  it("ends at once when stopped while idle, and leaves no timer", async () => {
    const { clock, starts, stop, start } = setUp();
    const loop = start();
    await clock.advance(10);
    stop.abort();
    await loop;
    assert.deepEqual(starts, []);
    assert.equal(clock.timerCount, 0);
  });

  it("waits for the run under way when stopped", async () => {
    const { clock, runner, stop, start } = setUp({}, () => clock.sleep(4000, new AbortController().signal));
    let hasEnded = false;
    const loop = start().then(() => {
      hasEnded = true;
    });
    runner.request();
    await clock.advance(1000);
    stop.abort();
    await clock.settle();
    assert.equal(hasEnded, false);
    await clock.advance(3000);
    assert.equal(hasEnded, true);
    await loop;
  });

  it("does not run at all when it is stopped before it starts", async () => {
    const { clock, starts, runner, stop, start } = setUp();
    runner.request();
    stop.abort();
    await start();
    await clock.advance(1);
    assert.deepEqual(starts, []);
  });

  it("refuses a longest period below the shortest one, naming both", () => {
    assert.throws(() => setUp({ minMs: 2000, maxMs: 1000 }), /maxMs \(1000\) is below minMs \(2000\)/);
  });

  it("refuses a period that is negative or not a number", () => {
    assert.throws(() => setUp({ minMs: -1 }), /minMs is -1/);
    assert.throws(() => setUp({ retryMs: Number.NaN }), /retryMs is NaN/);
  });

  it("refuses to start twice", async () => {
    const { stop, start } = setUp();
    const loop = start();
    await assert.rejects(start(), /started twice/);
    stop.abort();
    await loop;
  });
});

describe("bounded runner: a run at once", () => {
  it("waits neither for the cooldown nor for the loop, and never overlaps another", async () => {
    const { clock, starts, runner, start } = setUp({}, () => clock.sleep(400, new AbortController().signal));
    runner.runNow();
    await clock.advance(100);
    assert.deepEqual([starts, runner.isRunning], [[0], true]);
    void start();
    runner.runNow();
    await clock.advance(700);
    assert.deepEqual([starts, runner.isRunning], [[0, 400], false]);
  });

  it("does what was asked for before, and not again when the loop starts", async () => {
    const { clock, starts, runner, start } = setUp({});
    runner.request();
    runner.runNow();
    void start();
    await clock.advance(5000);
    assert.deepEqual(starts, [0]);
    runner.request();
    await clock.advance(1000);
    assert.equal(starts.length, 2);
  });

  it("leaves what was asked for before to the loop when it fails", async () => {
    const { clock, starts, runner, start } = setUp({}, failOn(1));
    runner.request();
    runner.runNow();
    await clock.settle();
    void start();
    await clock.advance(1000);
    assert.equal(starts.length, 2);
  });

  it("is tried again after the retry period when it fails", async () => {
    const { clock, starts, runner, start } = setUp({}, failOn(1));
    void start();
    await clock.advance(1000);
    runner.runNow();
    await clock.advance(5000);
    assert.deepEqual(starts, [1000, 6000]);
  });

  it("is tried again, too, when it failed before the loop starts", async () => {
    const { clock, starts, runner, start } = setUp({}, failOn(1));
    runner.runNow();
    await clock.advance(2000);
    void start();
    await clock.advance(3000);
    assert.deepEqual(starts, [0, 5000]);
  });

  it("has a retry that a second failure does not move back, and that a run before it cancels", async () => {
    const { clock, starts, runner, start } = setUp({}, failOn(1, 2, 4));
    void start();
    runner.runNow();
    await clock.advance(4000);
    runner.runNow();
    await clock.advance(1000);
    assert.deepEqual(starts, [0, 4000, 5000]);
    await clock.advance(2000);
    runner.runNow();
    await clock.settle();
    runner.request();
    await clock.advance(9999);
    assert.deepEqual(starts, [0, 4000, 5000, 7000, 7000]);
  });
});
