import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { Watchdog } from "./watchdog.ts";

test("silence is noticed after the limit, counted from the last sign of life", async () => {
  const clock = new FakeClock();
  let noticedAtMs = 0;
  const dog = new Watchdog(clock, 1_000, () => {
    noticedAtMs = clock.monotonicMs();
  });
  for (let count = 0; count < 5; count++) {
    await clock.advance(700);
    dog.alive();
  }
  await clock.advance(5_000);
  assert.equal(noticedAtMs, 4_500);
  assert.equal(clock.timerCount, 0);
});

test("a stopped one notices nothing and leaves no timer", async () => {
  const clock = new FakeClock();
  const dog = new Watchdog(clock, 1_000, () => assert.fail("it was stopped"));
  await clock.advance(900);
  dog.alive();
  await clock.advance(900);
  dog.stop();
  assert.equal(clock.timerCount, 0);
  await clock.advance(5_000);
});
