import assert from "node:assert/strict";
import { test } from "node:test";
import { withLoggedCalls } from "./logged-calls.ts";
import { type Facts, silentLogger } from "./logger.ts";

class Counter {
  #total = 0;
  add(by: number): number {
    this.#total += by;
    return this.#total;
  }
  total(): number {
    return this.#total;
  }
}

function counterAt(verbosity: number) {
  const lines: (readonly [message: string, facts: Facts | undefined])[] = [];
  const log = {
    ...silentLogger,
    isVerbose: (level: number) => level <= verbosity,
    v: (_level: number, message: string, facts?: Facts) => void lines.push([message, facts]),
  };
  return { counter: withLoggedCalls(new Counter(), ["add"], "Counting", log), lines };
}

test("at -v 9 the calls that write print their arguments, the others nothing", () => {
  const { counter, lines } = counterAt(9);
  assert.equal(counter.add(2), 2);
  assert.equal(counter.total(), 2);
  assert.deepEqual(lines, [["Counting", { call: "add", args: [2] }]]);
});

test("below -v 9 nothing is printed, and the calls do the same", () => {
  const { counter, lines } = counterAt(8);
  assert.equal(counter.add(2) + counter.add(3), 7);
  assert.deepEqual(lines, []);
});
