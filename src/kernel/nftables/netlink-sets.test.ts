import assert from "node:assert/strict";
import { test } from "node:test";
import { type IpAddress, parseIpAddress } from "../../net/ip.ts";
import { ByteWriter } from "../netlink/byte-writer.ts";
import { elementObject, writeElement } from "./netlink-sets.ts";
import { LAYOUTS } from "./netlink-values.ts";
import type { NftElement, NftFamily, NftSet } from "./ruleset.ts";
import { element } from "./wire/objects.ts";

function ip(text: string): IpAddress {
  return parseIpAddress(text) ?? assert.fail(text);
}

const SET: NftSet = { name: "s", key: ["address", "protocol", "port"], isMap: false };
const TARGETS: NftSet = { name: "t", key: ["address", "protocol", "port", "slot"], isMap: false, hasTargets: true };

const EXAMPLES: readonly (readonly [family: NftFamily, set: NftSet, one: NftElement])[] = [
  ["ip", SET, { key: [ip("10.96.0.1"), "tcp", 80] }],
  ["ip", SET, { key: [ip("10.96.0.1"), "udp", 53], comment: "ns/name:dns" }],
  [
    "ip",
    TARGETS,
    { key: [ip("10.96.0.1"), "tcp", 80, 3], target: { ip: ip("10.0.0.255"), port: 65535 }, comment: "a/b" },
  ],
  ["ip6", TARGETS, { key: [ip("fd00::1"), "sctp", 80, 0], target: { ip: ip("fd01::2:0:3"), port: 1 }, comment: "a/b" }],
  ["ip", { ...SET, key: ["port"] }, { key: [8080] }],
  ["ip", { ...SET, isMap: true }, { key: [ip("10.96.0.1"), "tcp", 80], verdict: { kind: "goto", chain: "c" } }],
  ["ip", TARGETS, { key: [] }],
];

for (const [family, set, one] of EXAMPLES) {
  test(`an element is written as its object is: ${family} ${set.name} ${one.key.join(" ")}`, () => {
    const layout = LAYOUTS[family];
    const [direct, expected] = [new ByteWriter(), new ByteWriter()];
    // What was written before must not show.
    writeElement(new ByteWriter(), TARGETS, { key: [ip("255.255.255.255"), "tcp", 65535, 2 ** 32 - 1] }, LAYOUTS.ip);
    writeElement(direct, set, one, layout);
    element.write(expected, elementObject(set, one, layout));
    assert.deepEqual(direct.bytes, expected.bytes);
  });
}

test("a key that does not fit is refused", () => {
  const out = new ByteWriter();
  assert.throws(() => writeElement(out, SET, { key: [ip("10.96.0.1"), "tcp"] }, LAYOUTS.ip), RangeError);
  assert.throws(() => writeElement(out, SET, { key: [ip("fd00::1"), "tcp", 80] }, LAYOUTS.ip), RangeError);
});
