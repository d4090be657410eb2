import assert from "node:assert/strict";
import { test } from "node:test";
import { byteReader } from "./attributes.ts";
import { answersTo, dumpWithRetry } from "./dump-retry.ts";
import { NetlinkError } from "./errors.ts";
import type { ReplyVisitor } from "./frames.ts";
import type { MessageBuffer } from "./message-buffer.ts";

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

test("what was listed before an interruption is listed once, and what is not wanted is left out", async () => {
  const input = byteReader(new Uint8Array());
  const attempts = [
    [1, 2],
    [3, 4, 5],
  ];
  const socket = {
    dump: async (request: MessageBuffer, visit: ReplyVisitor) => {
      assert.equal(request.count, 1);
      const types = attempts.shift() ?? [];
      for (const type of types) visit({ type, flags: 0, sequence: 0, portId: 0, input, start: 0, end: 0 });
      if (attempts.length > 0) throw interrupted;
    },
  };
  const listed = await answersTo(
    socket,
    (request) => request.put(1, 0, () => {}),
    ({ type }) => (type === 4 ? undefined : type),
  );
  assert.deepEqual(listed, [3, 5]);
});
