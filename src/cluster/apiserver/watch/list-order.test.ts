/** Whose list is read first. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { ListOrder } from "./list-order.ts";

async function isOver(order: ListOrder): Promise<boolean> {
  return await Promise.race([order.turn.then(() => true), new Promise<boolean>((done) => setImmediate(done, false))]);
}

test("the second list waits for the end of the first", async () => {
  const order = new ListOrder(new FakeClock());
  assert.equal(await isOver(order), false);
  order.end();
  assert.equal(await isOver(order), true);
});

test("it does not wait for one that is silent, and for a slow one only so long", async () => {
  const clock = new FakeClock();
  const silent = new ListOrder(clock);
  const slow = new ListOrder(clock);
  for (let second = 0; second < 9; second += 1) {
    await clock.advance(999);
    slow.alive();
  }
  assert.equal(await isOver(silent), true);
  assert.equal(await isOver(slow), false);
  for (let second = 0; second < 2; second += 1) {
    slow.alive();
    await clock.advance(999);
  }
  assert.equal(await isOver(slow), true);
});
