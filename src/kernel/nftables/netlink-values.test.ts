import assert from "node:assert/strict";
import { test } from "node:test";
import ipaddr from "ipaddr.js";
import fc from "../../../testkit/support/fast-check.ts";
import { type IpAddress, ipFromBytes } from "../../net/ip.ts";
import {
  addressBytes,
  decodeKey,
  type FamilyLayout,
  keyBytes,
  keyTypeId,
  keyTypesOf,
  LAYOUTS,
  putKey,
} from "./netlink-values.ts";
import type { NftKeyType, NftValue } from "./ruleset.ts";

const octets = (length: number) =>
  fc.uint8Array({ minLength: length, maxLength: length }).chain((bytes) =>
    // Runs of zeros are abbreviated in text.
    fc.tuple(fc.nat(length), fc.nat(length)).map(([a, b]) => bytes.map((byte, n) => (n >= a && n < b ? 0 : byte))),
  );
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");
const ip = (text: string) => text as IpAddress; // canonical literals below

function encodeKey(types: readonly NftKeyType[], values: readonly NftValue[], layout: FamilyLayout): Uint8Array {
  const bytes = new Uint8Array(keyBytes(types, layout));
  putKey(bytes, 0, types, values, layout);
  return bytes;
}

test("addresses of both families become the bytes that the slow way gives", () => {
  fc.assert(
    fc.property(octets(4), (bytes) => {
      assert.equal(hex(addressBytes(ipFromBytes(bytes), LAYOUTS.ip)), hex(bytes));
    }),
  );
  fc.assert(
    fc.property(octets(16), (bytes) => {
      assert.equal(hex(addressBytes(ipFromBytes(bytes), LAYOUTS.ip6)), hex(bytes));
    }),
  );
  for (const text of ["::", "::1", "1::", "fd00::1", "1:2:3:4:5:6:7:8", "1:0:0:4:5:6:7:8", "2001:db8::", "a:b::c:d"]) {
    assert.equal(hex(addressBytes(text, LAYOUTS.ip6)), hex(Uint8Array.from(ipaddr.parse(text).toByteArray())), text);
  }
});

test("an address of the other family is refused, a mapped one keeps its sixteen bytes", () => {
  assert.throws(() => addressBytes("fd00::1", LAYOUTS.ip), /fd00::1 is no address of family ip/);
  assert.equal(hex(addressBytes("10.0.0.1", LAYOUTS.ip6)), "00000000000000000000ffff0a000001");
});

test("fields of a key are padded with zeroes, a lone one is not", () => {
  const frontEnd: readonly NftKeyType[] = ["address", "protocol", "port"];
  assert.equal(hex(encodeKey(frontEnd, [ip("172.30.0.44"), "tcp", 80], LAYOUTS.ip)), "ac1e002c0600000000500000");
  assert.equal(hex(encodeKey(["port"], [80], LAYOUTS.ip)), "0050");
  assert.throws(() => encodeKey(frontEnd, [ip("172.30.0.44")], LAYOUTS.ip), RangeError);
});

test("keys are read back as they were written", () => {
  const types: readonly NftKeyType[] = ["address", "address", "protocol", "port"];
  const port = fc.integer({ min: 1, max: 65535 });
  // Elements of other programs may have protocols that we have no name for.
  const protocol = fc.oneof(fc.constantFrom("tcp", "udp", "sctp"), fc.constant(47));
  for (const [layout, length] of [
    [LAYOUTS.ip, 4],
    [LAYOUTS.ip6, 16],
  ] as const) {
    const address = octets(length).map(ipFromBytes);
    fc.assert(
      fc.property(fc.tuple(address, address, protocol, port), (values) => {
        assert.deepEqual(decodeKey(types, encodeKey(types, values, layout), layout), values);
      }),
    );
  }
  assert.equal(decodeKey(types, new Uint8Array(3), LAYOUTS.ip), undefined);
});

test("types have the numbers that nft gives them, and others are not ours", () => {
  assert.equal(keyTypeId(["address", "protocol", "port"], LAYOUTS.ip), 0x730d);
  assert.equal(keyTypeId(["address", "address", "protocol", "port"], LAYOUTS.ip6), 0x20830d);
  assert.deepEqual(keyTypesOf(0x20830d, LAYOUTS.ip6), ["address", "address", "protocol", "port"]);
  assert.equal(keyTypesOf(0x20830d, LAYOUTS.ip), undefined);
  assert.deepEqual(keyTypesOf(4, LAYOUTS.ip), ["slot"]);
  assert.equal(keyTypesOf(9, LAYOUTS.ip), undefined);
  assert.equal(keyTypesOf(0, LAYOUTS.ip), undefined);
});
