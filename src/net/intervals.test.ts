import assert from "node:assert/strict";
import { test } from "node:test";
import { intervalAsPrefix, mergedIntervals, nextAddress } from "./intervals.ts";
import { type Cidr, type IpAddress, parseCidr, parseIpAddress } from "./ip.ts";

function cidrs(...texts: string[]): Cidr[] {
  return texts.map((text) => {
    const cidr = parseCidr(text);
    assert.ok(cidr);
    return cidr;
  });
}

function ip(text: string): IpAddress {
  const parsed = parseIpAddress(text);
  assert.ok(parsed);
  return parsed;
}

test("prefixes that overlap or touch become one interval", () => {
  const cases: readonly (readonly [string[], string[]])[] = [
    [
      ["1.2.3.4/32", "1.2.3.5/32", "1.2.3.6/32", "10.0.0.0/8"],
      ["1.2.3.4-1.2.3.6", "10.0.0.0-10.255.255.255"],
    ],
    [["10.1.0.0/16", "10.0.0.0/8"], ["10.0.0.0-10.255.255.255"]],
    [
      ["11.0.0.0/8", "10.0.0.0/8", "255.255.255.255/32"],
      ["10.0.0.0-11.255.255.255", "255.255.255.255-255.255.255.255"],
    ],
    [["fd00::/64", "fd00:0:0:1::/64"], ["fd00::-fd00::1:ffff:ffff:ffff:ffff"]],
    [[], []],
  ];
  for (const [input, expected] of cases) {
    assert.deepEqual(
      mergedIntervals(cidrs(...input)).map(({ first, last }) => `${first}-${last}`),
      expected,
    );
  }
});

test("an interval is a prefix only when aligned and a power of two", () => {
  assert.deepEqual(intervalAsPrefix({ first: ip("198.51.100.2"), last: ip("198.51.100.3") }), {
    address: "198.51.100.2",
    length: 31,
  });
  assert.deepEqual(intervalAsPrefix({ first: ip("::1"), last: ip("::1") }), { address: "::1", length: 128 });
  assert.equal(intervalAsPrefix({ first: ip("1.2.3.4"), last: ip("1.2.3.6") }), undefined);
  assert.equal(intervalAsPrefix({ first: ip("1.2.3.5"), last: ip("1.2.3.6") }), undefined);
});

test("nothing comes after the last address", () => {
  assert.equal(nextAddress(ip("10.0.0.255")), "10.0.1.0");
  assert.equal(nextAddress(ip("255.255.255.255")), undefined);
});
