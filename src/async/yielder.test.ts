import assert from "node:assert/strict";
import { test } from "node:test";
import { alwaysYield, neverYield, SliceYielder } from "./yielder.ts";

test("a slice is due after some time without a turn, and a turn begins the next one", async () => {
  // A busy machine may take the processor away for a whole slice, but not every time.
  const isFresh = (isDue: () => boolean) => Array.from({ length: 1000 }, isDue).includes(false);
  assert.ok(isFresh(() => new SliceYielder().isDue()));
  const yielder = new SliceYielder();
  while (!yielder.isDue());
  let turned = false;
  setImmediate(() => {
    turned = true;
  });
  await yielder.turn();
  assert.ok(turned);
  let isDue = yielder.isDue();
  for (let tries = 0; tries < 1000 && isDue; tries++) {
    await yielder.turn();
    isDue = yielder.isDue();
  }
  assert.equal(isDue, false);
});

test("always is always due and lets others run; never is never due", async () => {
  assert.ok(alwaysYield.isDue());
  let turned = false;
  setImmediate(() => {
    turned = true;
  });
  await neverYield.turn();
  assert.equal(turned, false);
  await alwaysYield.turn();
  assert.ok(turned);
  assert.equal(neverYield.isDue(), false);
});

test("a turn ends with the reason of an abort", async () => {
  const signal = AbortSignal.abort(new Error("stop"));
  for (const yielder of [new SliceYielder(), alwaysYield, neverYield]) {
    await assert.rejects(yielder.turn(signal), /stop/);
  }
});

test("of several that wait one goes on in each turn, in the order of asking", async () => {
  const order: string[] = [];
  let turn = 0;
  const count = (): void => {
    turn += 1;
    if (turn < 5) setImmediate(count);
  };
  setImmediate(count);
  await Promise.all(["a", "b", "c"].map((name) => alwaysYield.turn().then(() => order.push(`${name}${turn}`))));
  assert.deepEqual(order, ["a1", "b2", "c3"]);
});
