import assert from "node:assert/strict";
import { test } from "node:test";
import { byteReader } from "../netlink/attributes.ts";
import { forEachMessage } from "../netlink/frames.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { NFNL_SUBSYS_NFTABLES, NFPROTO_IPV4, putNfnetlink } from "../netlink/nfnetlink.ts";
import { ChainLog } from "./chain-log.ts";
import * as nft from "./wire/constants.ts";
import { hookedChain, table as tableCodec } from "./wire/objects.ts";

function logged() {
  const log = new ChainLog();
  const tell = (message: number, write: (out: MessageBuffer) => void, family = NFPROTO_IPV4): void => {
    const messages = new MessageBuffer();
    putNfnetlink(messages, NFNL_SUBSYS_NFTABLES, message, 0, family, write);
    forEachMessage(byteReader(messages.bytes), messages.bytes.length, (reply) => log.note(reply));
  };
  return {
    log,
    table: (name: string, flags = 0, family = NFPROTO_IPV4) =>
      tell(nft.NFT_MSG_NEWTABLE, (out) => tableCodec.write(out, { name, handle: 3, flags }), family),
    chain: (name: string, hook?: Uint8Array) =>
      tell(nft.NFT_MSG_NEWCHAIN, (out) => hookedChain.write(out, { table: "t", name, handle: 1, hook })),
    names: (until: number) => log.history(until).events.map(({ chain, table }) => chain ?? table),
  };
}
const HOOK = new Uint8Array(4);
const own = [{ table: "ip own", chain: "ours", isCertain: true }];

test("commits count by their generations, also when a notification comes after our own commit", () => {
  const { log, table, chain, names } = logged();
  log.begin(10);
  log.committed(12, own);
  table("t");
  table("asleep", nft.NFT_TABLE_F_DORMANT);
  table("of-bridges", 0, 7);
  chain("early", HOOK);
  chain("regular");
  log.committed(11);
  chain("late", HOOK);
  log.committed(13);
  assert.deepEqual(names(12), ["ip t", "ip asleep", "early", "ours"], "what is later may not be whole");
  assert.deepEqual(names(13), ["ip t", "ip asleep", "early", "ours", "late"]);
  const { since, until, events } = log.history(14);
  assert.deepEqual([since, until], [13, 14]);
  assert.deepEqual(events.map(({ handle, isCertain }) => [handle, isCertain]).slice(0, 3), [
    [3, true],
    [3, false],
    [1, false],
  ]);
});

test("a commit of which a part was lost is left out: nothing is said of what came until it is known again", () => {
  const { log, chain, names } = logged();
  chain("before", HOOK);
  log.committed(9);
  log.begin(10);
  assert.deepEqual(names(10), []);
  chain("half", HOOK);
  log.forget();
  assert.equal(log.isKnown, false);
  log.committed(11);
  chain("later", HOOK);
  log.committed(13);
  log.begin(12);
  log.committed(12, own);
  assert.deepEqual(names(13), ["later"]);
});

test("generations wrap, and of very many chains the oldest go first", () => {
  const { log, chain, names } = logged();
  log.begin(2 ** 32 - 2);
  log.committed(1, own);
  for (let index = 0; index < 2_500; index += 1) chain(`c${index}`, HOOK);
  log.committed(2 ** 32 - 1);
  const found = names(1);
  assert.equal(found.length, 1_000);
  assert.deepEqual(found.slice(-2), ["c2499", "ours"]);
});
