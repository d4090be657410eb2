/** Text and JSON of a ruleset against `nft` itself; the cases are in test/conformance. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeEach, test } from "node:test";
import { canonicalNftText } from "../../../test/conformance/canonical-nft-text.ts";
import { canonicalNftables } from "../../../test/conformance/canonical-nftables.ts";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import type { Cidr, IpAddress } from "../../net/ip.ts";
import type { NftHook } from "./ruleset.ts";
import { type NftTable, tableJson, tableOf } from "./ruleset-table.ts";
import { tableText } from "./ruleset-text.ts";

const hook = (type: NftHook["type"], at: NftHook["hook"], priority: number): NftHook => ({ type, hook: at, priority });
const cidrs = (...texts: string[]) => texts as Cidr[]; // canonical literals
const HOOKS: readonly NftHook[] = [
  hook("filter", "prerouting", -110),
  hook("filter", "prerouting", -111),
  hook("nat", "prerouting", -100),
  hook("filter", "prerouting", -95),
  hook("filter", "output", -110),
  hook("filter", "input", 0),
  hook("filter", "forward", 0),
  hook("nat", "postrouting", 100),
  hook("filter", "postrouting", 101),
];

const TABLE: NftTable = {
  family: "ip",
  name: "t",
  comment: "a comment",
  counters: ["a-counter"],
  sets: [
    ...[1, 59, 60, 3_661, 86_400, 90_061].map((timeoutSeconds) => ({
      set: { name: `s${timeoutSeconds}`, key: ["address"], isMap: false, timeoutSeconds } as const,
      elements: [],
    })),
    {
      set: { name: "m", key: ["protocol", "port"], isMap: true, comment: "of the map" },
      elements: [
        { key: ["tcp", 1], verdict: { kind: "drop" }, comment: "one" },
        { key: ["sctp", 65535], verdict: { kind: "goto", chain: "c" } },
      ],
    },
  ],
  chains: [
    ...HOOKS.map((one, index) => ({ name: `h${index}`, hook: one, rules: [] })),
    {
      name: "c",
      comment: "of the chain",
      rules: [
        { statements: [{ kind: "address", side: "saddr", cidrs: cidrs("10.0.0.0/8") }], comment: "of the rule" },
        { statements: [{ kind: "address", side: "daddr", negate: true, cidrs: cidrs("10.0.0.1/32") }] },
        {
          statements: [{ kind: "address", side: "saddr", cidrs: cidrs("10.0.0.1/32", "10.0.0.2/32", "192.0.2.0/24") }],
        },
        { statements: [{ kind: "in-interface", name: "veth", isPrefix: true, negate: true }] },
        { statements: [{ kind: "fib-local", side: "daddr" }] },
        { statements: [{ kind: "l4proto", protocol: "udp" }] },
        {
          statements: [
            { kind: "mark-test", mask: 1 },
            { kind: "mark-set", operation: "or", value: 0x8000_0000 },
          ],
        },
        { statements: [{ kind: "vmap", fields: ["l4proto", "dport"], map: "m" }] },
        { statements: [{ kind: "update", set: "s1", field: "saddr" }] },
        { statements: [{ kind: "lookup", fields: ["saddr"], set: "s1" }, { kind: "reject" }] },
        { statements: [{ kind: "counter", name: "a-counter" }, { kind: "reject" }] },
        {
          statements: [
            { kind: "l4proto", protocol: "tcp" },
            { kind: "counter", name: "a-counter" },
            { kind: "reject", withReset: true },
          ],
        },
      ],
    },
  ],
};

inNetns(import.meta.url, { name: "nfttext" }, () => {
  beforeEach(() => execFileSync("nft", ["flush", "ruleset"]));
  const list = (...args: string[]) => execFileSync("nft", [...args, "list", "ruleset"], { encoding: "utf8" });

  test("text is what nft prints after having read it", () => {
    const text = tableText(TABLE);
    execFileSync("nft", ["-f", "-"], { input: text });
    assert.equal(canonicalNftText(list()), canonicalNftText(text));
  });

  test("JSON is what nft prints after having read the text, and nft reads it", (t) => {
    execFileSync("nft", ["-f", "-"], { input: tableText(TABLE) });
    const listed = canonicalNftables(JSON.parse(list("-j")).nftables);
    assert.equal(canonicalNftables(tableJson(TABLE)), listed);
    execFileSync("nft", ["flush", "ruleset"]);
    // `nft -j -f -` opens /dev/stdin, which must not be a socket.
    const folder = mkdtempSync(join(tmpdir(), "kpts-nft-"));
    t.after(() => rmSync(folder, { recursive: true }));
    writeFileSync(join(folder, "t.json"), JSON.stringify({ nftables: tableJson(TABLE) }));
    execFileSync("nft", ["-j", "-f", join(folder, "t.json")]);
    // nft 1.0.6 drops the comments of sets when it reads JSON.
    const expected = listed.replace('"comment":"of the map",', "");
    assert.equal(canonicalNftables(JSON.parse(list("-j")).nftables), expected);
  });
});

test("operations make the table that they describe, and nothing else can", () => {
  const set = { name: "s", key: ["address"], isMap: false } as const;
  const rule = { statements: [{ kind: "reject" }] } as const;
  const element = { key: ["192.0.2.1" as IpAddress] }; // canonical
  const table = tableOf("ip", "t", [
    { kind: "add-table", comment: "text" },
    { kind: "add-counter", counter: "k" },
    { kind: "add-set", set },
    { kind: "add-chain", chain: { name: "c", comment: "x" } },
    { kind: "add-rule", chain: "c", rule },
    { kind: "add-elements", set, elements: [element] },
  ]);
  assert.deepEqual(table, {
    family: "ip",
    name: "t",
    comment: "text",
    counters: ["k"],
    sets: [{ set, elements: [element] }],
    chains: [{ name: "c", comment: "x", rules: [rule] }],
  });
  assert.throws(() => tableOf("ip", "t", [{ kind: "delete-table" }]), RangeError);
});

test("what is added again keeps its rules and elements, and what is not there can get none: its loss would not show in the text", () => {
  const set = { name: "s", key: ["address"], isMap: false } as const;
  const addRule = { kind: "add-rule", chain: "c", rule: { statements: [{ kind: "reject" }] } } as const;
  const addElements = { kind: "add-elements", set, elements: [{ key: ["192.0.2.1" as IpAddress] }] } as const; // canonical
  const [addSet, addChain] = [{ kind: "add-set", set } as const, { kind: "add-chain", chain: { name: "c" } } as const];
  const once = tableOf("ip", "t", [addSet, addChain, addRule, addElements]);
  assert.deepEqual(tableOf("ip", "t", [addSet, addChain, addRule, addElements, addSet, addChain]), once);
  assert.throws(() => tableOf("ip", "t", [addSet, addRule]), /add-rule to "c", which does not exist/);
  assert.throws(() => tableOf("ip", "t", [addChain, addElements]), /add-elements to "s", which does not exist/);
});
