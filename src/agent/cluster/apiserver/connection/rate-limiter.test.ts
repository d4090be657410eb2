import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { RateLimiter } from "./rate-limiter.ts";

const never = new AbortController().signal;

test("a burst goes at once, what comes after it is spread by qps, in order", async () => {
  const clock = new FakeClock();
  const limiter = new RateLimiter({ qps: 2, burst: 3, clock });
  const done: string[] = [];
  for (const name of ["a", "b", "c", "d", "e"]) {
    void limiter.take(never).then((waitedMs) => done.push(`${name} ${waitedMs} at ${clock.monotonicMs()}`));
  }
  await clock.advance(10_000);
  assert.deepEqual(done, ["a 0 at 0", "b 0 at 0", "c 0 at 0", "d 500 at 500", "e 1000 at 1000"]);
  assert.equal(await limiter.take(never), 0, "it has filled up again");
});

test("0 means upstream's defaults, less than 0 no limit", async () => {
  const clock = new FakeClock();
  const limiter = new RateLimiter({ qps: 0, burst: 0, clock });
  for (let index = 0; index < 10; index++) assert.equal(await limiter.take(never), 0);
  const waiting = limiter.take(never);
  await clock.advance(200);
  assert.equal(await waiting, 200);
  const unlimited = new RateLimiter({ qps: -1, burst: 1, clock });
  for (let index = 0; index < 100; index++) assert.equal(await unlimited.take(never), 0);
});

test("a stop ends the wait", async () => {
  const clock = new FakeClock();
  const limiter = new RateLimiter({ qps: 0.1, burst: 1, clock });
  const stop = new AbortController();
  await limiter.take(never);
  const waiting = limiter.take(stop.signal);
  stop.abort();
  await waiting;
  assert.equal(clock.timerCount, 0);
});
