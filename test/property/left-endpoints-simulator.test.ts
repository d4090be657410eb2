/**
 * No living endpoint is left out, and the dead soon are: runs of a simulated node, network and clients around the policy (issue 49, item 9).
 * `KPTS_LEAVE_RUNS` sets how many runs are played, `KPTS_PROPERTY_SEED` where their seeds begin.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { historyRuns } from "../../testkit/support/fast-check.ts";
import { type Outcome, simulate } from "./left-endpoints-simulator.ts";

const RUNS = historyRuns("KPTS_LEAVE_RUNS", 1_000);
const FIRST = Number(process.env.KPTS_PROPERTY_SEED ?? 1_000);
/** What the issue asks for. */
const SOON_MS = 3_000;
const SOON_SHARE = 0.99;
const FALSE_MINUTES = 0.001;

/** How many are by chance so many that more of them mean a higher mean: once in a thousand times, as CI draws another seed each time. */
const atMost = (mean: number): number => Math.ceil(mean + 3.3 * Math.sqrt(mean));

test(`${RUNS} runs from seed ${FIRST}`, (context) => {
  const outcomes = Array.from({ length: RUNS }, (_, index) => ({ seed: FIRST + index, ...simulate(FIRST + index) }));
  const withSeed = (of: (outcome: Outcome) => readonly string[]) =>
    outcomes.flatMap((outcome) =>
      of(outcome).map((text) => `seed ${outcome.seed}, loss ${outcome.lossPercent} %, at ${text}`),
    );
  assert.deepEqual(
    withSeed(({ violations }) => violations),
    [],
  );

  const falsely = (from: number, to: number) =>
    withSeed(({ lossPercent, falselyLeft }) => (lossPercent >= from && lossPercent <= to ? falselyLeft : []));
  assert.deepEqual(falsely(0, 4.9), []);
  const minutes = outcomes.reduce((sum, outcome) => sum + (outcome.lossPercent === 10 ? outcome.minutes : 0), 0);
  const atTen = falsely(10, 10);
  const mostAtTen = atMost(minutes * FALSE_MINUTES);
  assert.ok(atTen.length <= mostAtTen, `${atTen.length} in ${minutes} minutes: ${atTen.join(", ")}`);

  const after = outcomes.flatMap(({ leftAfterMs }) => leftAfterMs);
  const soon = after.filter((ms) => ms <= SOON_MS).length;
  const late = after.filter((ms) => ms > SOON_MS).map(Math.round);
  assert.ok(after.length > RUNS / 4, `only ${after.length} busy endpoints died`);
  const text = `${soon} of ${after.length} within 3 s; the others after ${late.join(", ")} ms`;
  assert.ok(late.length <= atMost(after.length * (1 - SOON_SHARE)), text);

  const [left, back] = [
    outcomes.reduce((sum, one) => sum + one.left, 0),
    outcomes.reduce((sum, one) => sum + one.back, 0),
  ];
  assert.ok(left > RUNS && back > RUNS / 2, `${left} left out, ${back} back`);
  assert.ok(
    outcomes.some(({ held }) => held > 0),
    "bounds never mattered",
  );
  context.diagnostic(
    `${soon} of ${after.length} dead endpoints within 3 s; falsely left out at 10 %: ${atTen.length} in ${Math.round(minutes)} min`,
  );
});
