import assert from "node:assert/strict";
import { test } from "node:test";
import { oneInText } from "./plan-service-port.ts";

test("probabilities have ten decimals, rounded half to even", () => {
  const cases = [
    [1, "1.0000000000"],
    [2, "0.5000000000"],
    [3, "0.3333333333"],
    [10, "0.1000000000"],
    [2048, "0.0004882812"],
    [2047, "0.0004885198"],
    [100001, "0.0000099999"],
  ] as const;
  for (const [k, text] of cases) assert.equal(oneInText(k), text);
});

test("an endpoint's probability is its cells among those that are left", () => {
  // Weights 2, 3 and 5: 2 of 10, then 3 of 8.
  assert.equal(oneInText(10 / 2), "0.2000000000");
  assert.equal(oneInText(8 / 3), "0.3750000000");
});
