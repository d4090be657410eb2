import assert from "node:assert/strict";
import { test } from "node:test";
import { byteReader } from "../../netlink/attributes.ts";
import { forEachMessage, type ReplyVisitor } from "../../netlink/frames.ts";
import { MessageBuffer } from "../../netlink/message-buffer.ts";
import { NFPROTO_IPV4 } from "../../netlink/nfnetlink.ts";
import { NFT_MSG_GETTABLE } from "./constants.ts";
import { dumpObjects } from "./nftables-client.ts";
import { type NftTableObject, table } from "./objects.ts";

/** A fake kernel whose n-th dump returns messages of the n-th list of generations. */
function kernel(dumps: readonly (readonly number[])[]): {
  dump: (request: MessageBuffer, visit: ReplyVisitor) => Promise<void>;
  count: () => number;
} {
  let count = 0;
  return {
    count: () => count,
    async dump(_request, visit) {
      const replies = new MessageBuffer();
      for (const generation of dumps[count++] ?? []) {
        replies.put(0xa00, 0, (out) => {
          out.u16(0x200);
          out.u16(generation);
          table.write(out, { name: `t${count}`, use: generation });
        });
      }
      forEachMessage(byteReader(replies.bytes), replies.bytes.length, (reply) => {
        visit(reply);
      });
    },
  };
}

const request = { family: NFPROTO_IPV4, message: NFT_MSG_GETTABLE, codec: table, filter: {} };

test("objects of one generation are a consistent dump", async () => {
  const fake = kernel([[7, 7]]);
  assert.deepEqual(await dumpObjects(fake, request), [
    { name: "t1", use: 7 },
    { name: "t1", use: 7 },
  ]);
});

test("objects of two generations are thrown away and dumped again", async () => {
  const fake = kernel([[7, 8], [8]]);
  assert.deepEqual(await dumpObjects(fake, request), [{ name: "t2", use: 8 }]);
});

test("a ruleset that never rests is believed at the fifth look, or what was seen in all of them", async () => {
  const fake = kernel(Array.from({ length: 9 }, () => [1, 2]));
  assert.equal((await dumpObjects(fake, request)).length, 2);
  assert.equal(fake.count(), 5);

  const union = { ...request, keyOf: ({ name }: NftTableObject) => name };
  const names = async (dumps: readonly (readonly number[])[]) =>
    (await dumpObjects<NftTableObject>(kernel(dumps), union)).map(({ name }) => name);
  assert.deepEqual(await names(Array.from({ length: 9 }, () => [1, 2])), ["t1", "t2", "t3", "t4", "t5"]);
  assert.deepEqual(await names([[1, 2], [2]]), ["t2"]);
});
