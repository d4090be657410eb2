import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { nodePortAddresses, nodePortIPs } from "./node-port-addresses.ts";
import { ip } from "./testing/records.ts";

const INTERFACES = ["10.20.30.51", "127.0.0.1", "100.200.201.1", "10.20.30.51", "::1", "2001:db8::1", "fe80::1"].map(
  ip,
);

function resolved(family: "IPv4" | "IPv6", configured: readonly string[]) {
  const found = nodePortIPs(nodePortAddresses(family, configured), INTERFACES);
  return found.kind === "all" ? "all" : found.ips;
}

const rows: readonly [readonly string[], "all" | readonly string[], "all" | readonly string[]][] = [
  [[], "all", "all"],
  [["10.20.30.0/24"], ["10.20.30.51"], "all"],
  [["2001:db8::/64"], "all", ["2001:db8::1"]],
  [["1.2.3.0/24", "0.0.0.0/0"], "all", "all"],
  [["0.0.0.0/0", "1.2.3.0/24", "2001:db8::1/128"], "all", ["2001:db8::1"]],
  [["0.0.0.0/0", "2001:db8::9/128"], "all", []],
  [["127.0.0.0/8"], ["127.0.0.1"], "all"],
  [["10.20.30.51/32", "10.0.0.0/8", "100.200.0.0/16"], ["10.20.30.51", "100.200.201.1"], "all"],
  [["10.20.30.51/24", "::/0"], ["10.20.30.51"], "all"],
  [[" 10.20.30.0/24 "], ["10.20.30.51"], "all"],
];

describe("node-port addresses", () => {
  for (const [configured, v4, v6] of rows) {
    test(`${configured.join(", ") || "(empty)"}: IPv4 ${v4}, IPv6 ${v6}`, () => {
      assert.deepEqual(resolved("IPv4", configured), v4);
      assert.deepEqual(resolved("IPv6", configured), v6);
    });
  }

  test("prefixes of one family do not leak into the other", () => {
    assert.deepEqual(nodePortAddresses("IPv6", ["10.0.0.0/8"]).cidrs, ["::/0"]);
    assert.deepEqual(nodePortAddresses("IPv4", ["10.1.0.0/8", "fd00::/8"]).cidrs, ["10.0.0.0/8"]);
  });
});

describe("whether loopback is covered", () => {
  const loopback: readonly [readonly string[], boolean][] = [
    [[], true],
    [["0.0.0.0/0"], true],
    [["10.0.0.0/8", "0.0.0.0/0"], true],
    [["127.0.0.0/8"], true],
    [["127.0.2.0/28"], true],
    [["127.0.0.1/32"], true],
    [["64.0.0.0/2"], true],
    [["126.0.0.0/7"], true],
    [["128.0.2.0/28"], false],
    [["224.0.0.0/24"], false],
    [["10.0.0.0/8", "fd00::/8"], false],
    [["fd00::/8"], true],
  ];
  for (const [configured, expected] of loopback) {
    test(`${configured.join(", ") || "(empty)"}: ${expected}, never for IPv6`, () => {
      assert.equal(nodePortAddresses("IPv4", configured).containsLoopback, expected);
      assert.equal(nodePortAddresses("IPv6", [...configured, "::1/128"]).containsLoopback, false);
      assert.equal(nodePortAddresses("IPv6", []).containsLoopback, false);
    });
  }
});
