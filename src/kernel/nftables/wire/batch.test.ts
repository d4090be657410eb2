/** Element messages start with the names of the table and the set. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { NFPROTO_IPV4 } from "../../netlink/nfnetlink.ts";
import { NftBatch } from "./batch.ts";

function bytesOf(table: string, set: string | { readonly set?: string; readonly setId: number }): string {
  const batch = new NftBatch(NFPROTO_IPV4);
  batch.addElements(table, set, [{ key: { value: Uint8Array.of(1, 2, 3, 4) } }]);
  return batch.messages.bytes.subarray(batch.messages.startOf(1)).toString("latin1");
}

test("elements of sets of one name in two tables, by name and by number, are written for the set that was named", () => {
  const first = bytesOf("a", "one");
  for (let round = 0; round < 2; round += 1) {
    assert.equal(bytesOf("a", "one"), first);
    assert.equal(bytesOf("b", "one"), first.replace("a\0", "b\0"));
    assert.equal(bytesOf("a", "two"), first.replace("one\0", "two\0"));
    assert.notEqual(bytesOf("a", { set: "one", setId: 7 }), first);
    assert.equal(bytesOf("a", { setId: 7 }).includes("one"), false);
  }
});
