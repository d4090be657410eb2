import assert from "node:assert/strict";
import { test } from "node:test";
import { KernelWaits } from "./kernel-waits.ts";

function subject() {
  let now = 0;
  const waits = new KernelWaits(() => now);
  const ends: (() => void)[] = [];
  class Kernel {
    readonly #answer = "ours";
    readonly size = 3;
    ask(): Promise<string> {
      return new Promise((resolve) => ends.push(() => resolve(this.#answer)));
    }
    store(): void {
      now += 4;
    }
    refuse(): void {
      now += 2;
      throw new Error("refused");
    }
    watch(): Promise<string> {
      return this.ask();
    }
  }
  return {
    waits,
    kernel: waits.timed(new Kernel(), "watch"),
    pass: (ms: number) => {
      now += ms;
    },
    end: async (promise: Promise<unknown>) => {
      ends.shift()?.();
      await promise;
      // The wait ends one microtask later.
      await Promise.resolve();
    },
  };
}

test("waits are counted, overlapping ones once, and nothing between them", async () => {
  const { waits, kernel, pass, end } = subject();
  waits.begin();
  pass(10);
  const first = kernel.ask();
  pass(5);
  const second = kernel.ask();
  pass(5);
  await end(first);
  pass(5);
  assert.equal(waits.ms, 15);
  await end(second);
  pass(100);
  assert.equal(waits.ms, 15);
  assert.equal(await first, "ours");
  kernel.store();
  assert.throws(() => kernel.refuse(), /refused/);
  assert.equal(waits.ms, 21);
});

test("what began before counts from the begin; what only watches does not count", async () => {
  const { waits, kernel, pass, end } = subject();
  const early = kernel.ask();
  pass(50);
  waits.begin();
  pass(3);
  await end(early);
  const watching = kernel.watch();
  pass(7);
  assert.equal(waits.ms, 3);
  await end(watching);
  assert.deepEqual([waits.ms, kernel.size], [3, 3]);
});
