import assert from "node:assert/strict";
import { test } from "node:test";
import { FairTurns } from "./fair-turns.ts";

const nextTurn = () => new Promise(setImmediate);

test("who asks late in a turn goes on in a later one, in the order of asking, a few at a time", async () => {
  let nowMs = 0;
  const turns = new FairTurns(() => nowMs);
  const wentOn: number[] = [];
  const ask = (who: number) => turns.mayGoOn(() => wentOn.push(who));
  assert.ok(ask(-1));
  nowMs += 7.9;
  assert.ok(ask(-2));
  nowMs += 0.1;
  for (let who = 0; who < 70; who++) assert.ok(!ask(who));
  assert.deepEqual(wentOn, []);
  for (const expected of [32, 64, 70]) {
    await nextTurn();
    assert.deepEqual(
      wentOn,
      Array.from({ length: expected }, (_, who) => who),
    );
  }
});

test("each turn has its own time", async () => {
  let nowMs = 0;
  const turns = new FairTurns(() => nowMs);
  for (let turn = 0; turn < 5; turn++) {
    assert.ok(turns.mayGoOn(() => {}));
    nowMs += 100;
    assert.ok(!turns.mayGoOn(() => {}));
    await nextTurn();
  }
});
