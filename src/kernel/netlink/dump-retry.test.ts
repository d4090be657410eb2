import assert from "node:assert/strict";
import { test } from "node:test";
import { dumpWithRetry } from "./dump-retry.ts";
import { NetlinkError } from "./errors.ts";

function failing(times: number, error: Error): { dump: () => Promise<void>; calls: () => number } {
  let calls = 0;
  return {
    dump: async () => {
      calls++;
      if (calls <= times) throw error;
    },
    calls: () => calls,
  };
}

const interrupted = new NetlinkError("interrupted", "changed");

test("an interrupted dump is repeated until it is complete", async () => {
  const { dump, calls } = failing(4, interrupted);
  assert.equal(await dumpWithRetry(dump), true);
  assert.equal(calls(), 5);
});

test("after five interrupted attempts the partial result is accepted", async () => {
  const { dump, calls } = failing(9, interrupted);
  assert.equal(await dumpWithRetry(dump), false);
  assert.equal(calls(), 5);
});

test("other errors are not repeated", async () => {
  const { dump, calls } = failing(9, new NetlinkError("EPERM", "no"));
  await assert.rejects(dumpWithRetry(dump), /no/);
  assert.equal(calls(), 1);
});
