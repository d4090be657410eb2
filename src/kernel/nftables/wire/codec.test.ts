import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "../../../../testkit/support/fast-check.ts";
import { byteReader, type Codec } from "../../netlink/attributes.ts";
import { hexDump, NetlinkError } from "../../netlink/errors.ts";
import { MessageBuffer } from "../../netlink/message-buffer.ts";
import { NFPROTO_IPV4 } from "../../netlink/nfnetlink.ts";
import { concat } from "../testing/registers.ts";
import { setCommentOf } from "../testing/set-comment.ts";
import { NftBatch } from "./batch.ts";
import * as nft from "./constants.ts";
import { hostU32, netU16 } from "./data.ts";
import { expression, type NftExpression } from "./expressions.ts";
import { elements as elementsCodec, rule } from "./objects.ts";
import { commentOf, commentUserdata, parseUserdata, setUserdata } from "./userdata.ts";

const TABLE = "kube-proxy";

/** The bytes of one operation, with its sequence number set. */
function message(sequence: number, fill: (batch: NftBatch) => void): string {
  const batch = new NftBatch(NFPROTO_IPV4);
  fill(batch);
  batch.messages.setSequence(sequence - 1);
  return batch.messages.bytes.toString("hex", batch.messages.startOf(1));
}

const golden = (text: string): string => text.replaceAll(/\s/g, "");

describe("messages are nft's, byte for byte (reference nfnetlink.md §12)", () => {
  test("flush of a chain", () => {
    assert.equal(
      message(45, (batch) => batch.delete("rule", { table: TABLE, chain: "reject-chain" })),
      golden(`38000000 080a0100 2d000000 00000000 02000000 0f000100 6b756265 2d70726f 78790000
        11000200 72656a65 63742d63 6861696e 00000000`),
    );
  });

  test("rule with a jump", () => {
    const jump: NftExpression = {
      kind: "immediate",
      dreg: nft.NFT_REG_VERDICT,
      data: { verdict: { code: nft.NFT_JUMP, chain: "services" } },
    };
    assert.equal(
      message(24, (batch) => batch.add("rule", { table: TABLE, chain: "nat-output", expressions: [jump] })),
      golden(`78000000 060a010c 18000000 00000000 02000000 0f000100 6b756265 2d70726f 78790000 0f000200 6e61742d
        6f757470 75740000 44000480 40000180 0e000100 696d6d65 64696174 65000000 2c000280 08000100 00000000 20000280
        1c000280 08000100 fffffffd 0d000200 73657276 69636573 00000000`),
    );
  });

  test("element with a comment and a verdict", () => {
    const key = concat(Uint8Array.of(17), netU16(3001));
    const drop = { verdict: { code: nft.NF_DROP } };
    const item = { key: { value: key }, data: drop, userdata: commentUserdata("ns2/svc2:p80") };
    assert.equal(
      message(69, (batch) => batch.addElements(TABLE, { set: "no-endpoint-nodeports", setId: 5 }, [item])),
      golden(`84000000 0c0a0104 45000000 00000000 02000000 0f000100 6b756265 2d70726f 78790000 1a000200 6e6f2d65
        6e64706f 696e742d 6e6f6465 706f7274 73000000 08000400 00000005 3c000380 38000180 10000180 0c000100 11000000
        0bb90000 10000280 0c000280 08000100 00000000 13000600 000d6e73 322f7376 63323a70 38300000`),
    );
  });
});

const bytes = fc.uint8Array({ minLength: 1, maxLength: 16 });
const u32 = fc.integer({ min: 0, max: 0xffff_ffff });
const arbitraryExpression: fc.Arbitrary<NftExpression> = fc.oneof(
  fc.record(
    { kind: fc.constant("meta" as const), key: u32, dreg: u32, sreg: u32 },
    { requiredKeys: ["kind"], noNullPrototype: true },
  ),
  fc.record(
    {
      kind: fc.constant("cmp" as const),
      sreg: u32,
      op: u32,
      data: fc.record({ value: bytes }, { noNullPrototype: true }),
    },
    { requiredKeys: ["kind"], noNullPrototype: true },
  ),
  fc.record(
    { kind: fc.constant("lookup" as const), set: fc.string(), sreg: u32, setId: u32 },
    { requiredKeys: ["kind"], noNullPrototype: true },
  ),
  fc.record(
    { kind: fc.constant("limit" as const), rate: fc.maxSafeNat(), burst: u32 },
    { requiredKeys: ["kind"], noNullPrototype: true },
  ),
  fc.constant({
    kind: "dynset" as const,
    op: 1,
    setName: "s",
    expressions: [{ kind: "counter" as const, bytes: 1, packets: 2 }],
  }),
  fc.constant({ kind: "unknown" as const, name: "xt", data: Uint8Array.of(8, 0, 1, 0, 1, 2, 3, 4) }),
);

function encode<T>(codec: Codec<T>, value: T): Buffer {
  const out = new MessageBuffer();
  codec.write(out, value);
  return Buffer.from(out.bytes);
}

describe("expressions", () => {
  test("are read back as they were written", () => {
    const noZero = arbitraryExpression.filter((value) => value.kind !== "lookup" || value.set?.includes("\0") !== true);
    fc.assert(
      fc.property(noZero, (value) => {
        const written = encode(expression, value);
        assert.deepEqual(expression.read(byteReader(written), 0, written.length), value);
      }),
    );
  });

  test("damaged bytes are read or refused as malformed, and never crash or loop", () => {
    const whole = encode(rule, {
      table: "t",
      chain: "c",
      expressions: [
        { kind: "dynset", setName: "s", expressions: [{ kind: "counter", bytes: 0, packets: 0 }] },
        { kind: "immediate", dreg: 0, data: { verdict: { code: -4, chain: "x" } } },
      ],
    });
    const edits = fc.array(fc.tuple(fc.nat(whole.length - 1), fc.nat(255)), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(edits, fc.nat(whole.length), (changes, length) => {
        const damaged = Buffer.from(whole.subarray(0, length));
        for (const [at, byte] of changes) if (at < length) damaged[at] = byte;
        try {
          rule.read(byteReader(damaged), 0, damaged.length);
        } catch (error) {
          assert.ok(error instanceof NetlinkError && error.code === "malformed", String(error));
        }
      }),
      { numRuns: 3000 },
    );
  });

  test("one that does not exist is refused before it is sent", () => {
    const bogus: unknown = { kind: "bogus" };
    const writeAny: (out: MessageBuffer, value: never) => void = expression.write;
    assert.throws(() => writeAny(new MessageBuffer(), bogus as never), /no such expression: bogus/);
  });
});

describe("register contents", () => {
  test("a concatenation pads each field with zeroes to four bytes", () => {
    const key = concat(Uint8Array.of(172, 30, 0, 44), Uint8Array.of(6), netU16(80));
    assert.equal(Buffer.from(key).toString("hex"), "ac1e002c0600000000500000");
  });

  test("kernel integers are in host order", () => {
    assert.equal(Buffer.from(hostU32(0x4000)).toString("hex"), "00400000");
  });

  test("a concatenated type has its first field on top", () => {
    const { ipv4_addr, ipv6_addr, inet_proto, inet_service } = nft.NFT_TYPES;
    assert.equal(nft.concatType([ipv4_addr, ipv4_addr, inet_proto, inet_service]), 0x1c730d);
    assert.equal(nft.concatType([ipv6_addr, ipv6_addr, inet_proto, inet_service]), 0x20830d);
  });
});

describe("user data", () => {
  test("comments have their terminator, and sets a type of their own", () => {
    assert.equal(Buffer.from(commentUserdata("hi")).toString("hex"), "0003686900");
    const userdata = setUserdata({ keyByteOrder: "none", dataByteOrder: "none", comment: "NodePort traffic" });
    assert.equal(
      Buffer.from(userdata).toString("hex"),
      `000400000000010400000000${"0711"}${Buffer.from("NodePort traffic\0").toString("hex")}`,
    );
  });

  test("comments are read back; foreign or damaged user data gives none", () => {
    fc.assert(
      fc.property(
        fc.string({ maxLength: 60 }).filter((text) => !text.includes("\0")),
        (text) => {
          assert.equal(commentOf(commentUserdata(text)), text);
          assert.equal(setCommentOf(setUserdata({ keyByteOrder: "host", comment: text })), text);
        },
      ),
    );
    assert.equal(commentOf(Uint8Array.of(0, 2, 65, 66)), undefined);
    assert.equal(commentOf(undefined), undefined);
    fc.assert(fc.property(fc.uint8Array(), (garbage) => void parseUserdata(garbage)));
  });

  test("a comment longer than the kernel takes is cut between characters", () => {
    const cut = commentUserdata("é".repeat(200));
    assert.ok(cut.length <= 256);
    assert.equal(commentOf(cut), "é".repeat(126));
    assert.ok(setUserdata({ keyByteOrder: "none", comment: "x".repeat(300) }).length <= 256);
  });
});

describe("batches", () => {
  const items = (count: number) => Array.from({ length: count }, (_, n) => ({ key: { value: hostU32(n) } }));

  test("many elements are split below the limit of an attribute, and none is lost", () => {
    const batch = new NftBatch(NFPROTO_IPV4);
    batch.addElements("t", "s", items(10_000));
    assert.equal(batch.size, 3);
    const reader = byteReader(batch.messages.bytes);
    let seen = 0;
    for (let index = 1; index <= batch.size; index++) {
      const start = batch.messages.startOf(index) + 20;
      for (const item of elementsOf(reader, start, batch.messages.startOf(index + 1))) {
        assert.equal(hexDump(item), hexDump(hostU32(seen++)));
      }
    }
    assert.equal(seen, 10_000);
  });

  test("deleting no elements sends nothing: it would flush the set", () => {
    const batch = new NftBatch(NFPROTO_IPV4);
    batch.changeElements("delete", { table: "t", set: "s" }, [], () => assert.fail("none"));
    assert.equal(batch.size, 0);
  });

  test("sets get distinct ids", () => {
    const first = message(1, (batch) => batch.add("set", { table: "t", name: "a" }));
    assert.ok(first.endsWith("08000a0000000001"));
    const batch = new NftBatch(NFPROTO_IPV4);
    batch.add("set", { table: "t", name: "a" });
    assert.equal(batch.takeSetId(), 2);
  });

  test("an object that cannot be written leaves the batch as it was", () => {
    const batch = new NftBatch(NFPROTO_IPV4);
    batch.add("table", { name: "t" });
    assert.throws(() => batch.add("table", { name: "a\0b" }), RangeError);
    assert.equal(batch.size, 1);
    batch.finish();
    assert.equal(batch.size, 1);
    assert.throws(() => batch.add("table", { name: "t" }), /finished/);
  });
});

function elementsOf(reader: ReturnType<typeof byteReader>, start: number, end: number): Uint8Array[] {
  return (elementsCodec.read(reader, start, end).elements ?? []).map(({ key }) => key?.value ?? new Uint8Array());
}
