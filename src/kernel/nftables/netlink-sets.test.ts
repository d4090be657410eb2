import assert from "node:assert/strict";
import { test } from "node:test";
import { type IpAddress, parseIpAddress } from "../../net/ip.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { verdictData, writeElement } from "./netlink-sets.ts";
import { type FamilyLayout, keyBytes, LAYOUTS, putAddress, putKey } from "./netlink-values.ts";
import type { NftElement, NftFamily, NftSet } from "./ruleset.ts";
import { element, type NftElementObject } from "./wire/objects.ts";
import { commentUserdata } from "./wire/userdata.ts";

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

/** The element as an object, for comparison with what `writeElement` writes. */
function elementObject(set: NftSet, { key, verdict, target, comment }: NftElement, layout: FamilyLayout) {
  const named = new Uint8Array(keyBytes(set.key, layout));
  if (key.length > 0) putKey(named, 0, set.key, key, layout);
  const value = new Uint8Array(layout.addressBytes + 4);
  if (target !== undefined) {
    putAddress(value, 0, target.ip, layout);
    new DataView(value.buffer).setUint16(layout.addressBytes, target.port);
  }
  const data = verdict === undefined ? target && { value } : { verdict: verdictData(verdict) };
  const userdata = comment === undefined ? undefined : commentUserdata(comment);
  const object: NftElementObject = { ...(key.length === 0 ? { flags: 2 } : { key: { value: named } }), data, userdata };
  return object;
}

for (const [family, set, one] of EXAMPLES) {
  test(`an element is written as its object is: ${family} ${set.name} ${one.key.join(" ")}`, () => {
    const layout = LAYOUTS[family];
    const [direct, expected] = [new MessageBuffer(), new MessageBuffer()];
    // Earlier contents must not show through.
    writeElement(new MessageBuffer(), TARGETS, { key: [ip("255.255.255.255"), "tcp", 65535, 2 ** 32 - 1] }, LAYOUTS.ip);
    writeElement(direct, set, one, layout);
    element.write(expected, elementObject(set, one, layout));
    assert.deepEqual(direct.bytes, expected.bytes);
  });
}

test("a key that does not fit is refused", () => {
  const out = new MessageBuffer();
  assert.throws(() => writeElement(out, SET, { key: [ip("10.96.0.1"), "tcp"] }, LAYOUTS.ip), RangeError);
  assert.throws(() => writeElement(out, SET, { key: [ip("fd00::1"), "tcp", 80] }, LAYOUTS.ip), RangeError);
});
