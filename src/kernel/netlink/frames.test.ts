import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { byteReader, zstring } from "./attributes.ts";
import { NetlinkError } from "./errors.ts";
import { errorFromReply, forEachMessage } from "./frames.ts";
import { MessageBuffer } from "./message-buffer.ts";
import { beginBatch, endBatch, NFNL_SUBSYS_NFTABLES, NFPROTO_IPV4, putNfnetlink } from "./nfnetlink.ts";

function walk(bytes: Uint8Array): { type: number; sequence: number; payload: string }[] {
  const seen: { type: number; sequence: number; payload: string }[] = [];
  forEachMessage(byteReader(bytes), bytes.length, ({ type, sequence, input, start, end }) => {
    seen.push({ type, sequence, payload: input.bytes.toString("hex", start, end) });
  });
  return seen;
}

function twoMessages(): MessageBuffer {
  const messages = new MessageBuffer();
  for (const text of ["a", "bcdef"]) {
    messages.put(0x123, 0, (out) => out.text(text));
  }
  messages.setSequence(0xffff_ffff);
  return messages;
}

describe("messages in a datagram", () => {
  test("are visited with type, sequence number (modulo 2^32) and unpadded payload", () => {
    assert.deepEqual(walk(twoMessages().bytes), [
      { type: 0x123, sequence: 0xffff_ffff, payload: Buffer.from("a").toString("hex") },
      { type: 0x123, sequence: 0, payload: Buffer.from("bcdef").toString("hex") },
    ]);
  });

  test("arbitrary bytes are walked or refused as malformed, and never crash or loop", () => {
    const arbitrary = fc.oneof(
      fc.uint8Array({ maxLength: 120 }),
      fc.tuple(fc.nat(), fc.nat(255)).map(([at, byte]) => {
        const bytes = Buffer.from(twoMessages().bytes);
        bytes[at % bytes.length] = byte;
        return bytes;
      }),
    );
    fc.assert(
      fc.property(arbitrary, (bytes) => {
        try {
          walk(bytes);
        } catch (error) {
          assert.ok(error instanceof NetlinkError && error.code === "malformed", String(error));
        }
      }),
      { numRuns: 2000 },
    );
  });
});

describe("messages under construction", () => {
  test("batch markers are the kernel's golden bytes (reference nfnetlink.md §12)", () => {
    const messages = new MessageBuffer();
    beginBatch(messages);
    endBatch(messages);
    messages.setSequence(0);
    assert.equal(
      messages.bytes.toString("hex"),
      "14000000100001000000000000000000" + "0000000a" + "14000000110001000100000000000000" + "0000000a",
    );
  });

  test("a batch may name the generation it was planned for", () => {
    const messages = new MessageBuffer();
    beginBatch(messages, 0x01020304);
    assert.equal(messages.bytes.toString("hex", 20), "0800010001020304");
  });

  test("a message that could not be finished is dropped without a trace", () => {
    const messages = twoMessages();
    const before = messages.bytes.toString("hex");
    const put = (value: string): void =>
      messages.put(7, 0, (out) => {
        out.u32(1);
        zstring.write(out, value);
      });
    assert.throws(() => put("a\0b"), /zero byte/);
    assert.equal(messages.count, 2);
    assert.equal(messages.bytes.toString("hex"), before);
    put("ab");
    assert.deepEqual([messages.count, messages.typeOf(2), messages.startOf(2)], [3, 7, before.length / 2]);
  });

  test("reset forgets the messages", () => {
    const messages = twoMessages();
    messages.reset();
    assert.equal(messages.count, 0);
    assert.equal(messages.bytes.length, 0);
  });

  test("reset keeps memory up to a limit, and what is put later is whole", () => {
    const messages = new MessageBuffer();
    const put = (): string => {
      beginBatch(messages);
      endBatch(messages);
      return messages.bytes.toString("hex");
    };
    const before = put();
    const { buffer } = messages.memory;
    messages.reset(4096);
    assert.equal(messages.memory.buffer, buffer);
    messages.reset(4095);
    assert.deepEqual([messages.memory.length, buffer.byteLength], [0, 0]);
    assert.equal(put(), before);
  });
});

test("an extended acknowledgement is decoded: errno, text, offset, and the attribute there", () => {
  const sent = new MessageBuffer();
  putNfnetlink(sent, NFNL_SUBSYS_NFTABLES, 0, 0, NFPROTO_IPV4, (out) =>
    out.raw(Buffer.from("0800070000000001", "hex")),
  );
  sent.setSequence(5);
  const answer = new MessageBuffer();
  // error · capped · with attributes; then status −2 and the request's header
  answer.put(2, 0x300, (out) => {
    out.raw(Buffer.from("feffffff", "hex"));
    out.raw(sent.bytes.subarray(0, 16));
    out.raw(Buffer.from("0700010068690000", "hex"));
    out.raw(Buffer.from("0800020014000000", "hex"));
  });
  answer.setSequence(5);
  let error: NetlinkError | undefined;
  forEachMessage(byteReader(answer.bytes), answer.bytes.length, (reply) => {
    error = errorFromReply(reply, sent, 0);
  });
  assert.equal(error?.code, "ENOENT");
  assert.equal(error.message, "netlink: request 1 of 1, type 2560: ENOENT (hi; attribute 7 at byte 20)");
  assert.deepEqual(error.facts.request, { index: 0, type: 2560, sequence: 5 });
  assert.equal(error.facts.attribute, 7);
});
