import assert from "node:assert/strict";
import { test } from "node:test";
import { encodeTransaction } from "./netlink-transaction.ts";
import { LAYOUTS } from "./netlink-values.ts";
import type { NftOperation } from "./nftables.ts";

const TARGET = { layout: LAYOUTS.ip, table: "t" };

test("operations are taken one by one, and the event loop gets a turn whenever a slice of time is used up", async (t) => {
  let nowMs = 0;
  t.mock.method(performance, "now", () => nowMs);
  let turns = 0;
  let isOver = false;
  const count = (): void => {
    turns += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  /** For each operation, how many turns of the event loop came before it was taken. */
  const turnsBefore: number[] = [];
  function* operations(): Iterable<NftOperation> {
    for (let index = 0; index < 200; index += 1) {
      turnsBefore.push(turns);
      nowMs += 1;
      yield { kind: "flush-chain", chain: `chain-${index}` };
    }
  }
  const { batch } = await encodeTransaction(TARGET, operations());
  isOver = true;
  assert.equal(batch.size, 200);
  const withoutTurn = Math.max(...turnsBefore.map((at) => turnsBefore.filter((other) => other === at).length));
  assert.ok(withoutTurn <= 20, `${withoutTurn} operations, a millisecond each, were encoded without a turn`);
});
