import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { withoutNodePortWords } from "../contract/config/node-port-words.ts";
import { effectiveNodeAddresses, nodeIPsOf, nodeNameFrom, primaryCidrs } from "./node-identity.ts";
import { nodePortAddresses } from "./node-port-addresses.ts";
import { ip } from "./testing/records.ts";

describe("node name", () => {
  test("the override wins; both are trimmed and lower-cased", () => {
    assert.equal(nodeNameFrom("", " Host-1.Example \n"), "host-1.example");
    assert.equal(nodeNameFrom(" Node-A ", "host"), "node-a");
  });
  test("nothing left is an error, also for a blank override", () => {
    assert.throws(() => nodeNameFrom("", " "), { message: "empty hostname is invalid" });
    assert.throws(() => nodeNameFrom("  ", "host"), { message: "empty hostname is invalid" });
  });
});

describe("IPs of a Node object", () => {
  const rows: readonly [string, readonly [string, string][], readonly string[]][] = [
    ["none", [["Hostname", "10.0.0.9"]], []],
    [
      "internal before external",
      [
        ["ExternalIP", "90.0.0.1"],
        ["InternalIP", "10.0.0.1"],
      ],
      ["10.0.0.1"],
    ],
    ["external when nothing else", [["ExternalIP", "90.0.0.1"]], ["90.0.0.1"]],
    [
      "the first of the other family is the second",
      [
        ["InternalIP", "2001:db8::2"],
        ["InternalIP", "2001:db8::3"],
        ["InternalIP", "90.90.90.90"],
        ["InternalIP", "10.0.0.1"],
      ],
      ["2001:db8::2", "90.90.90.90"],
    ],
    [
      "the other family may come from the external ones",
      [
        ["ExternalIP", "2001:db8::2"],
        ["InternalIP", "10.0.0.1"],
        ["InternalIP", "10.0.0.2"],
      ],
      ["10.0.0.1", "2001:db8::2"],
    ],
    [
      "unparsable ones are dropped",
      [
        ["InternalIP", "junk"],
        ["InternalIP", "010.0.0.1"],
      ],
      ["10.0.0.1"],
    ],
  ];
  for (const [name, pairs, expected] of rows) {
    test(name, () => {
      assert.deepEqual(nodeIPsOf({ addresses: pairs.map(([type, address]) => ({ type, address })) }), expected);
    });
  }
});

describe("effective addresses", () => {
  const rows: readonly [readonly string[], string, string, string, string][] = [
    [[], "", "IPv4", "127.0.0.1", "::1"],
    [[], "0.0.0.0", "IPv4", "127.0.0.1", "::1"],
    [[], "::", "IPv4", "127.0.0.1", "::1"],
    [[], "10.0.0.1", "IPv4", "10.0.0.1", "::1"],
    [[], "fd00:4321::2", "IPv6", "127.0.0.1", "fd00:4321::2"],
    [["192.168.1.1"], "::", "IPv4", "192.168.1.1", "::1"],
    [["fd00:1234::1"], "0.0.0.0", "IPv6", "127.0.0.1", "fd00:1234::1"],
    [["2001:db8::2", "90.90.90.90"], "0.0.0.0", "IPv6", "90.90.90.90", "2001:db8::2"],
    [["2001:db8::2", "90.90.90.90"], "80.80.80.80", "IPv4", "80.80.80.80", "2001:db8::2"],
    [["2001:db8::2", "90.90.90.90"], "127.0.0.1", "IPv4", "127.0.0.1", "2001:db8::2"],
    [["192.168.1.1"], "not an address", "IPv4", "192.168.1.1", "::1"],
  ];
  for (const [nodeIPs, bindAddress, primaryFamily, v4, v6] of rows) {
    test(`node ${nodeIPs.join(" ") || "–"}, bindAddress ${bindAddress || "–"}: ${primaryFamily} ${v4} ${v6}`, () => {
      assert.deepEqual(effectiveNodeAddresses(nodeIPs.map(ip), bindAddress), {
        primaryFamily,
        ips: { IPv4: v4, IPv6: v6 },
      });
    });
  }
});

describe("the words of nodePortAddresses", () => {
  const expanded = (nodeIPs: readonly string[], configured: readonly string[] = ["primary"]) =>
    withoutNodePortWords(configured, primaryCidrs(effectiveNodeAddresses(nodeIPs.map(ip), "")));

  test("are replaced where they stand", () => {
    assert.deepEqual(expanded(["10.0.0.7", "fd00::7"], ["all", "10.0.0.0/8", "primary", "localhost"]), [
      ...["0.0.0.0/0", "::/0", "10.0.0.0/8", "10.0.0.7/32", "fd00::7/128", "127.0.0.0/8", "::1/128"],
    ]);
    assert.deepEqual(expanded([], ["primary", "localhost"]), ["127.0.0.0/8", "::1/128"]);
  });
  test("primary becomes the node's own addresses", () => {
    assert.deepEqual(expanded(["fd00::7", "10.0.0.7"]), ["10.0.0.7/32", "fd00::7/128"]);
  });
  test("primary on a single-stack node leaves the other family open", () => {
    const list = expanded(["10.0.0.7"]);
    assert.deepEqual(list, ["10.0.0.7/32"]);
    assert.equal(nodePortAddresses("IPv6", list).matchesAll, true);
  });
  test("primary with unknown node IPs means all addresses", () => {
    assert.deepEqual(expanded([]), []);
    assert.equal(nodePortAddresses("IPv4", expanded([])).matchesAll, true);
  });
  test("other lists stay", () => {
    assert.deepEqual(expanded(["10.0.0.7"], ["10.0.0.0/8"]), ["10.0.0.0/8"]);
    assert.deepEqual(expanded(["10.0.0.7"], []), []);
  });
});
