import assert from "node:assert/strict";
import { test } from "node:test";
import type { NftOperation } from "../src/kernel/nftables/nftables.ts";
import type { IpAddress } from "../src/net/ip.ts";
import { nftScript } from "./nft-program.ts";

test("a change is written for nft as upstream writes it", () => {
  const set = { name: "service-ips", key: ["address", "protocol", "port"], isMap: true } as const;
  const targets = ["10.0.0.1", "10.0.0.2"].map((ip) => ({ ip: ip as IpAddress, port: 80 })); // canonical
  const operations: NftOperation[] = [
    { kind: "flush-chain", chain: "a" },
    { kind: "add-chain", chain: { name: "b" } },
    { kind: "add-rule", chain: "b", rule: { statements: [{ kind: "reject" }], comment: "text" } },
    { kind: "add-rule", chain: "b", rule: { statements: [{ kind: "random-dnat", targets }] } },
    {
      kind: "add-elements",
      set,
      elements: [{ key: ["10.0.0.1" as IpAddress, "tcp", 80], verdict: { kind: "goto", chain: "b" } }], // canonical
    },
  ];
  assert.deepEqual(nftScript("t", operations).split("\n"), [
    "add chain ip t a",
    "flush chain ip t a",
    "add chain ip t b",
    "flush chain ip t b",
    'add rule ip t b reject comment "text"',
    "add rule ip t b dnat ip addr . port to numgen random mod 2 map { 0 : 10.0.0.1 . 80 , 1 : 10.0.0.2 . 80 }",
    "add element ip t service-ips { 10.0.0.1 . tcp . 80 : goto b }",
    "",
  ]);
  assert.throws(() => nftScript("t", [{ kind: "delete-table" }]), RangeError);
});
