import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { giveTurn, isTurnDue, turnPolicy } from "./turns.ts";

const policy = { ...turnPolicy };
afterEach(() => {
  Object.assign(turnPolicy, policy);
});

test("a turn is due after some time without one, for all computations together, and begins the next slice", async () => {
  await giveTurn();
  assert.equal(isTurnDue(), false);
  while (!isTurnDue());
  assert.ok(isTurnDue());
  let turned = false;
  setImmediate(() => {
    turned = true;
  });
  await giveTurn();
  assert.ok(turned);
  assert.equal(isTurnDue(), false);
});

test("a turn that the event loop has had for another reason begins a slice, too", async () => {
  while (!isTurnDue());
  await new Promise<void>((resolve) => {
    setTimeout(resolve, 1);
  });
  await new Promise<void>((resolve) => {
    setImmediate(resolve);
  });
  assert.equal(isTurnDue(), false);
});

test("tests say when a turn is due, and what it is", async () => {
  let turns = 0;
  turnPolicy.isDue = () => true;
  turnPolicy.turn = async () => {
    turns += 1;
  };
  assert.ok(isTurnDue());
  await giveTurn();
  assert.equal(turns, 1);
});

test("a turn ends with the reason of an abort", async () => {
  await assert.rejects(giveTurn(AbortSignal.abort(new Error("stop"))), /stop/);
});

test("of several that wait one goes on in each turn, in the order of asking", async () => {
  const order: string[] = [];
  let turn = 0;
  const count = (): void => {
    turn += 1;
    if (turn < 5) setImmediate(count);
  };
  setImmediate(count);
  await Promise.all(["a", "b", "c"].map((name) => giveTurn().then(() => order.push(`${name}${turn}`))));
  assert.deepEqual(order, ["a1", "b2", "c3"]);
});
