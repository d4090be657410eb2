import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import {
  attributes,
  binary,
  byteReader,
  type Codec,
  flag,
  i32be,
  list,
  u8,
  u16be,
  u16host,
  u32be,
  u32host,
  u64be,
  u64host,
  type ValueOf,
  zstring,
} from "./attributes.ts";
import { hexDump, NetlinkError } from "./errors.ts";
import { MessageBuffer } from "./message-buffer.ts";

const inner = attributes({ port: [1, u16be], index: [2, u16host] });
const sample = attributes({
  name: [1, zstring],
  small: [2, u8],
  big: [3, u32be],
  host: [4, u32host],
  signed: [5, i32be],
  handle: [6, u64be],
  total: [7, u64host],
  data: [8, binary],
  nest: [9, inner],
  items: [10, list(1, inner)],
  present: [11, flag],
});
type Sample = ValueOf<typeof sample>;

function encode<T>(codec: Codec<T>, value: T): Buffer {
  const out = new MessageBuffer(8);
  codec.write(out, value);
  return Buffer.from(out.bytes);
}

function decode<T>(codec: Codec<T>, bytes: Uint8Array): T {
  return codec.read(byteReader(bytes), 0, bytes.length);
}

const isMalformed = (error: unknown): boolean => error instanceof NetlinkError && error.code === "malformed";

const arbitraryInner = fc.record(
  { port: fc.integer({ min: 0, max: 65535 }), index: fc.integer({ min: 0, max: 65535 }) },
  { requiredKeys: [], noNullPrototype: true },
);
const arbitrarySample: fc.Arbitrary<Sample> = fc.record(
  {
    name: fc.string({ unit: "binary" }).filter((text) => !text.includes("\0")),
    small: fc.integer({ min: 0, max: 255 }),
    big: fc.integer({ min: 0, max: 0xffff_ffff }),
    host: fc.integer({ min: 0, max: 0xffff_ffff }),
    signed: fc.integer({ min: -0x8000_0000, max: 0x7fff_ffff }),
    handle: fc.maxSafeNat(),
    total: fc.maxSafeNat(),
    data: fc.uint8Array({ maxLength: 40 }),
    nest: arbitraryInner,
    items: fc.array(arbitraryInner, { maxLength: 4 }),
    present: fc.constant(true),
  },
  { requiredKeys: [], noNullPrototype: true },
);

describe("attribute codecs", () => {
  test("write the kernel's layout: length without padding, big-endian payload, NESTED bit", () => {
    const nest = attributes({ inside: [2, u32be] });
    const table = attributes({ name: [1, zstring], nest: [4, nest] });
    // 07 00 | 01 00 | "ip\0" pad      0c 00 | 04 80 | 08 00 | 02 00 | 00 00 00 07      (little-endian machine)
    assert.equal(
      encode(table, { name: "ip", nest: { inside: 7 } }).toString("hex"),
      "070001006970000" + "0" + "0c000480" + "08000200" + "00000007",
    );
  });

  test("what is written is read back", () => {
    fc.assert(
      fc.property(arbitrarySample, (value) => {
        assert.deepEqual(decode(sample, encode(sample, value)), value);
      }),
    );
  });

  test("reading and writing again gives the same bytes", () => {
    fc.assert(
      fc.property(arbitrarySample, (value) => {
        const bytes = encode(sample, value);
        assert.equal(hexDump(encode(sample, decode(sample, bytes))), hexDump(bytes));
      }),
    );
  });

  test("arbitrary bytes are read or refused as malformed, and never crash or loop", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        try {
          decode(sample, bytes);
        } catch (error) {
          assert.ok(isMalformed(error), String(error));
        }
      }),
      { numRuns: 2000 },
    );
  });

  test("a message cut short or with one byte changed is read or refused as malformed", () => {
    fc.assert(
      fc.property(arbitrarySample, fc.nat(), fc.nat(), fc.nat(255), (value, cut, at, byte) => {
        const bytes = encode(sample, value);
        const damaged = bytes.subarray(0, bytes.length === 0 ? 0 : cut % (bytes.length + 1));
        if (damaged.length > 0) damaged[at % damaged.length] = byte;
        try {
          decode(sample, damaged);
        } catch (error) {
          assert.ok(isMalformed(error), String(error));
        }
      }),
      { numRuns: 1000 },
    );
  });

  test("attributes that a table does not know are skipped", () => {
    const newer = attributes({ name: [1, zstring], future: [40, u32be] });
    const bytes = encode(newer, { future: 5, name: "x" });
    assert.deepEqual(decode(sample, bytes), { name: "x" });
  });

  test("a text without a terminator is read to the end of its attribute only", () => {
    const table = attributes({ name: [1, binary], next: [2, binary] });
    const bytes = encode(table, { name: Buffer.from("abcd"), next: Buffer.from("efgh") });
    assert.deepEqual(decode(sample, bytes.subarray(0, 8)), { name: "abcd" });
  });

  test("text with a zero byte is refused before it reaches the kernel", () => {
    assert.throws(() => encode(sample, { name: "a\0b" }), RangeError);
  });

  test("a payload over 65531 bytes is refused: a wrapped length would make the kernel ignore the batch silently", () => {
    encode(sample, { data: new Uint8Array(65531) });
    assert.throws(() => encode(sample, { data: new Uint8Array(65532) }), /split it/);
  });

  test("binary values survive the reuse of the receive buffer", () => {
    const bytes = encode(sample, { data: Uint8Array.of(1, 2, 3) });
    const value = decode(sample, bytes);
    bytes.fill(0xff);
    assert.deepEqual(value.data, Uint8Array.of(1, 2, 3));
  });

  test("64-bit integers keep their low bits up to 2^53", () => {
    assert.equal(encode(sample, { handle: 2 ** 53 - 1 }).toString("hex", 4), "001fffffffffffff");
    assert.equal(encode(sample, { total: 2 ** 32 + 2 }).toString("hex", 4), "0200000001000000");
  });
});

test("a hex dump shows offsets, groups of four and text, and is limited", () => {
  const dump = hexDump(Buffer.from("kube-proxy\0rules for kube-proxy"), 20);
  assert.equal(
    dump,
    "0000  6b756265 2d70726f 78790072 756c6573  kube-proxy.rules\n" +
      "0010  20666f72                              for\n" +
      "…and 11 bytes more",
  );
});
