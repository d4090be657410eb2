import assert from "node:assert/strict";
import { test } from "node:test";
import ipaddr from "ipaddr.js";
import fc from "../../testkit/support/fast-check.ts";
import {
  cidrContains,
  type IpAddress,
  ipBytes,
  ipFromBytes,
  joinHostPort,
  parseCidr,
  parseIpAddress,
  specialAddress,
} from "./ip.ts";

test("IPv6 addresses are read and written as a library for them does", () => {
  const groups = fc.array(fc.constantFrom("0", "00", "1", "ffff", "0001", "aBc", "12345", "", ":", "::"), {
    maxLength: 10,
  });
  const text = groups.map((parts) => parts.join(":"));
  fc.assert(
    fc.property(text, (written) => {
      const isOne = written.includes(":") && ipaddr.IPv6.isValid(written);
      const parsed = isOne ? ipaddr.IPv6.parse(written) : undefined;
      const isIPv4 = parsed?.isIPv4MappedAddress() === true;
      assert.equal(parseIpAddress(written), isIPv4 ? parsed.toIPv4Address().toString() : parsed?.toRFC5952String());
    }),
    { numRuns: 2_000 },
  );
});

test("addresses come out canonical, however sloppily they are written", () => {
  const cases: readonly (readonly [string, string | undefined])[] = [
    ["172.30.0.041", "172.30.0.41"],
    ["10.180.00.001", "10.180.0.1"],
    ["1.2.3", undefined],
    ["256.1.1.1", undefined],
    ["0x10.1.1.1", undefined],
    [" 1.2.3.4", undefined],
    ["", undefined],
    ["FD00:0:0:0:0:0:0:1", "fd00::1"],
    ["1:0:0:2:0:0:0:3", "1:0:0:2::3"],
    ["2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"],
    ["::ffff:10.0.0.1", "10.0.0.1"],
    ["::ffff:010.000.0.01", "10.0.0.1"],
    ["64:ff9b::10.0.0.1", "64:ff9b::a00:1"],
    // Only ::ffff: makes an IPv4 address.
    ["::10.0.0.1", "::a00:1"],
    ["1:2:3:4:5:6:10.0.0.1", "1:2:3:4:5:6:a00:1"],
    ["::a10.0.0.1", undefined],
    ["::256.0.0.1", undefined],
    ["::10.0.0.1:1", undefined],
    ["1:2:3:4:5:6:7:10.0.0.1", undefined],
    ["fe80::1%eth0", undefined],
    ["::", "::"],
    ["1::2::3", undefined],
  ];
  for (const [input, expected] of cases) assert.equal(parseIpAddress(input), expected, input);
});

test("prefixes lose their host bits", () => {
  const cases: readonly (readonly [string, string | undefined])[] = [
    ["1.2.3.4/28", "1.2.3.0/28"],
    ["203.0.113.000/025", "203.0.113.0/25"],
    ["10.0.0.0/33", undefined],
    ["10.0.0.0", undefined],
    ["10.0.0.0/", undefined],
    ["10.0.0.0/-1", undefined],
    ["fd00:10:180::1/80", "fd00:10:180::/80"],
    ["::/0", "::/0"],
    ["::10.0.0.0/104", "::a00:0/104"],
    ["::ffff:10.0.0.0/104", "10.0.0.0/8"],
    ["255.255.255.255/1", "128.0.0.0/1"],
  ];
  for (const [input, expected] of cases) assert.equal(parseCidr(input), expected, input);
});

test("containment stays inside a family", () => {
  const cidr = parseCidr("10.0.0.0/8");
  const inside = parseIpAddress("10.255.0.1");
  const outside = parseIpAddress("11.0.0.1");
  const other = parseIpAddress("fd00::1");
  assert.ok(cidr && inside && outside && other);
  assert.deepEqual(
    [inside, outside, other].map((ip) => cidrContains(cidr, ip)),
    [true, false, false],
  );
});

test("bytes and text are inverse", () => {
  for (const text of ["10.0.0.1", "fd00::1", "::1", "::"]) {
    const ip = parseIpAddress(text);
    assert.ok(ip);
    assert.equal(ipFromBytes(ipBytes(ip)), text);
  }
  const v6 = parseIpAddress("fd00::1");
  assert.ok(v6);
  assert.equal(joinHostPort(v6, 80), "[fd00::1]:80");
});

test("addresses that no connection can be led to are told apart", () => {
  const kinds = {
    loopback: ["127.0.0.0", "127.255.255.255", "::1"],
    unspecified: ["0.0.0.0", "::"],
    "link-local": ["169.254.0.0", "169.254.255.255", "fe80::", "febf:ffff::1"],
    multicast: ["224.0.0.1", "239.255.255.255", "ff00::", "ff02::1", "ffff::1"],
    broadcast: ["255.255.255.255"],
  };
  const ordinary = ["126.255.255.255", "128.0.0.1", "0.0.0.1", "169.253.0.1", "169.255.0.1", "223.255.255.255"];
  const ordinary6 = ["240.0.0.1", "255.255.255.254", "1::", "::2", "fe7f::1", "fec0::1", "fe8::1", "ff::1", "fd00::1"];
  for (const [kind, texts] of Object.entries(kinds)) {
    for (const text of texts) assert.equal(specialAddress(parsed(text)), kind, text);
  }
  for (const text of [...ordinary, ...ordinary6]) assert.equal(specialAddress(parsed(text)), undefined, text);
});

function parsed(text: string): IpAddress {
  const address = parseIpAddress(text);
  assert.equal(address, text);
  return address;
}
