import assert from "node:assert/strict";
import { test } from "node:test";
import { estimate, judgeEstimate, permutations } from "./estimate.ts";

test("the interval is where the sign test has it, for any distribution", () => {
  // Of 100 sorted samples the 40th and the 61st (tables of the binomial distribution).
  const samples = Array.from({ length: 100 }, (_, index) => index + 1);
  assert.deepEqual(estimate(samples.toReversed()), { median: 50.5, low: 40, high: 61 });
  const disturbed = samples.map((sample) => (sample > 90 ? sample * 1000 : sample));
  assert.deepEqual(estimate(disturbed), { median: 50.5, low: 40, high: 61 });
});

test("few samples give all of them, none 0", () => {
  assert.deepEqual(estimate([3, 1, 2]), { median: 2, low: 1, high: 3 });
  assert.deepEqual(estimate([]), { median: 0, low: 0, high: 0 });
});

test("it holds the true median in about 95 of 100 runs", () => {
  const order = permutations(7);
  let held = 0;
  for (let run = 0; run < 400; run++) {
    const { low, high } = estimate(order(1001).slice(0, 81));
    if (low <= 500 && 500 <= high) held++;
  }
  assert.ok(held > 400 * 0.93 && held <= 400, `${held} of 400`);
});

test("a limit within the interval is said to be open; the median decides", () => {
  const found = { median: 1.01, low: 1, high: 1.03 };
  assert.deepEqual(judgeEstimate("it", found, 1.02), {
    passed: true,
    text: "it: 1.010 (1.000 to 1.030), at most 1.02 wanted, which this run does not settle",
  });
  assert.deepEqual(judgeEstimate("it", found, 0.95), {
    passed: false,
    text: "it: 1.010 (1.000 to 1.030), at most 0.95 wanted",
  });
});

test("orders are permutations, differ, and are the same in every run", () => {
  const [one, two] = [permutations(), permutations()];
  const firsts = [0, 0, 0, 0];
  for (let round = 0; round < 4000; round++) {
    const order = one(4);
    assert.deepEqual(order, two(4));
    assert.deepEqual([...order].sort(), [0, 1, 2, 3]);
    const [first = 0] = order;
    firsts[first] = (firsts[first] ?? 0) + 1;
  }
  for (const count of firsts) assert.ok(count > 850 && count < 1150, firsts.join());
});
