import assert from "node:assert/strict";
import { it } from "node:test";
import { FakeClock } from "../agent/sync/testing/fake-clock.ts";
import { SharedTurns } from "./bounded-runner.ts";

const NEVER = new AbortController().signal;

function setUp(fails: (turn: number) => boolean = () => false) {
  const clock = new FakeClock();
  const log: string[] = [];
  let count = 0;
  const turns = new SharedTurns(async () => {
    const turn = ++count;
    log.push(`begin ${turn}`);
    await clock.sleep(100, NEVER);
    log.push(`end ${turn}`);
    if (fails(turn)) throw new Error(`turn ${turn} fails`);
  });
  return { clock, log, turns };
}

it("gives all who ask during a turn one further turn, after it", async () => {
  const { clock, log, turns } = setUp();
  const first = turns.take();
  await clock.advance(50);
  const second = turns.take();
  assert.equal(turns.take(), second);
  await clock.advance(150);
  await Promise.all([first, second]);
  assert.deepEqual(log, ["begin 1", "end 1", "begin 2", "end 2"]);
});

it("begins the next turn after one that fails, and tells each only of its own turn", async () => {
  const { clock, log, turns } = setUp((turn) => turn === 1);
  const ends = Promise.allSettled([turns.take(), turns.take(), turns.take()]);
  await clock.advance(200);
  assert.deepEqual(
    (await ends).map(({ status }) => status),
    ["rejected", "fulfilled", "fulfilled"],
  );
  assert.deepEqual(log, ["begin 1", "end 1", "begin 2", "end 2"]);
});

it("is idle once the running and the waiting turn are over, although one fails", async () => {
  const { clock, turns } = setUp((turn) => turn === 2);
  const ends = Promise.allSettled([turns.take(), turns.take()]);
  let isIdle = false;
  const idle = turns.idle().then(() => {
    isIdle = true;
  });
  await clock.advance(199);
  assert.deepEqual([isIdle, turns.isRunning], [false, true]);
  await clock.advance(1);
  assert.deepEqual([isIdle, turns.isRunning], [true, false]);
  await Promise.all([idle, ends]);
});
