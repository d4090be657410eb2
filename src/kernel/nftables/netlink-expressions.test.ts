/** Rules and sets that no conformance case has: the kernel gets the same bytes as from `nft`. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, beforeEach, describe, test } from "node:test";
import { rawTable } from "../../../test/conformance/raw-nftables.ts";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import type { Cidr, IpAddress } from "../../net/ip.ts";
import { type NetlinkRuleset, openNetlinkRuleset } from "./netlink-nftables.ts";
import { LAYOUTS } from "./netlink-values.ts";
import type { NftOperation } from "./nftables.ts";
import type { NftFamily, NftHook, NftSet, NftStatement } from "./ruleset.ts";
import { type NftablesClient, openNftables } from "./wire/nftables-client.ts";

const TABLE = "t";
const cidrs = (...texts: string[]) => texts as Cidr[]; // canonical literals
const ip = (text: string) => text as IpAddress; // canonical literal
const from = (...texts: string[]): NftStatement => ({ kind: "address", side: "saddr", cidrs: cidrs(...texts) });
const to = (...texts: string[]): NftStatement => ({
  kind: "address",
  side: "daddr",
  negate: true,
  cidrs: cidrs(...texts),
});
const goto = (chain: string): NftStatement => ({ kind: "verdict", verdict: { kind: "goto", chain } });

/** Each rule twice: as data, and as the text that upstream would write to `nft`. */
const RULES: Readonly<Record<NftFamily, readonly (readonly [statements: readonly NftStatement[], text: string])[]>> = {
  ip: [
    [[from("0.0.0.0/0")], "ip saddr 0.0.0.0/0"],
    [[from("240.0.0.0/4")], "ip saddr 240.0.0.0/4"],
    [[from("10.0.0.0/8")], "ip saddr 10.0.0.0/8"],
    [[from("10.0.0.0/15")], "ip saddr 10.0.0.0/15"],
    [[from("10.1.0.0/16")], "ip saddr 10.1.0.0/16"],
    [[from("10.1.2.0/24")], "ip saddr 10.1.2.0/24"],
    [[to("10.1.2.2/31")], "ip daddr != 10.1.2.2/31"],
    [[to("10.1.2.3/32")], "ip daddr != { 10.1.2.3/32 }"],
    [[from("10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24")], "ip saddr { 10.0.0.0/8, 10.1.0.0/16, 192.0.2.0/24 }"],
    [[from("10.0.0.0/8", "10.0.0.0/8")], "ip saddr { 10.0.0.0/8, 10.0.0.0/8 }"],
    [[to("10.0.0.1/32", "10.0.0.2/32")], "ip daddr != { 10.0.0.1/32, 10.0.0.2/32 }"],
    [[to("0.0.0.0/8", "255.0.0.0/8")], "ip daddr != { 0.0.0.0/8, 255.0.0.0/8 }"],
    [[from("0.0.0.0/0", "10.0.0.0/8")], "ip saddr { 0.0.0.0/0, 10.0.0.0/8 }"],
    [[{ kind: "in-interface", name: "cni0", isPrefix: false, negate: true }], 'iifname != "cni0"'],
    [[{ kind: "in-interface", name: "abcdefghijklmno", isPrefix: false }], 'iifname "abcdefghijklmno"'],
    [[{ kind: "in-interface", name: "veth", isPrefix: true }], 'iifname "veth*"'],
    [[{ kind: "in-interface", name: "veth", isPrefix: true, negate: true }], 'iifname != "veth*"'],
    [[{ kind: "fib-local", side: "saddr" }], "fib saddr type local"],
    [[{ kind: "fib-local", side: "daddr" }], "fib daddr type local"],
    [[{ kind: "mark-test", mask: 0x8000_0000 }], "meta mark and 0x80000000 != 0"],
    [[{ kind: "mark-set", operation: "or", value: 0x8000_0000 }], "meta mark set mark or 0x80000000"],
    [[{ kind: "mark-set", operation: "xor", value: 1 }], "meta mark set mark xor 0x1"],
    [[{ kind: "l4proto", protocol: "sctp" }, goto("other")], "meta l4proto sctp goto other"],
    [[{ kind: "vmap", fields: ["l4proto", "dport"], map: "ports" }], "meta l4proto . th dport vmap @ports"],
    [
      [{ kind: "random-vmap", verdicts: [{ kind: "goto", chain: "other" }, { kind: "drop" }] }],
      "numgen random mod 2 vmap { 0 : goto other, 1 : drop }",
    ],
    [[{ kind: "update", set: "seen", field: "saddr" }], "update @seen { ip saddr }"],
    [
      [
        { kind: "l4proto", protocol: "udp" },
        { kind: "dnat", to: { ip: ip("10.0.0.1"), port: 65535 } },
      ],
      "meta l4proto udp dnat to 10.0.0.1:65535",
    ],
    [
      [
        { kind: "l4proto", protocol: "tcp" },
        { kind: "random-dnat", targets: [{ ip: ip("10.0.0.1"), port: 80 }] },
      ],
      "meta l4proto tcp dnat ip addr . port to numgen random mod 1 map { 0 : 10.0.0.1 . 80 }",
    ],
  ],
  ip6: [
    [[from("fd00::/8")], "ip6 saddr fd00::/8"],
    [[from("fd00::/56")], "ip6 saddr fd00::/56"],
    [[from("fd00::/65")], "ip6 saddr fd00::/65"],
    [[to("fd00::100/120")], "ip6 daddr != fd00::100/120"],
    [[to("::1/128")], "ip6 daddr != ::1"],
    [[from("::/0")], "ip6 saddr ::/0"],
    [[from("fd00::/64", "fd00:1::/80", "::1/128")], "ip6 saddr { fd00::/64, fd00:1::/80, ::1/128 }"],
    [[to("::/1", "ffff::/16")], "ip6 daddr != { ::/1, ffff::/16 }"],
    [[{ kind: "update", set: "seen", field: "saddr" }], "update @seen { ip6 saddr }"],
    [
      [
        { kind: "l4proto", protocol: "tcp" },
        { kind: "dnat", to: { ip: ip("fd00::1"), port: 80 } },
      ],
      "meta l4proto tcp dnat to [fd00::1]:80",
    ],
  ],
};

const DPORT = ["l4proto", "dport"] as const;
const SLOTS: NftSet = {
  name: "slots",
  key: ["address", "protocol", "port", "slot"],
  isMap: false,
  hasTargets: true,
  slots: 512,
};
const { hasTargets: _, ...OF_CHAINS } = SLOTS;
const CHAIN_SLOTS: NftSet = { ...OF_CHAINS, name: "chain-slots", isMap: true };
const PORT_SLOTS: NftSet = { ...SLOTS, name: "port-slots", key: ["protocol", "port", "slot"] };

/** Choices by a hash, in the same two forms. */
function hashed(family: NftFamily): readonly (readonly [statements: readonly NftStatement[], text: string])[] {
  return ([["saddr"], ["saddr", "sport"]] as const).flatMap((fields, seed) => {
    const text = `jhash ${family} saddr${seed === 0 ? "" : " . th sport"} mod 512 seed ${seed}`;
    const choice = { kind: "map-dnat", slots: 512, hash: { fields, seed } } as const;
    return [
      [
        [{ ...choice, fields: ["daddr", ...DPORT], map: SLOTS.name }],
        `dnat ${family} to ${family} daddr . meta l4proto . th dport . ${text} map @slots`,
      ],
      [
        [{ ...choice, fields: DPORT, map: PORT_SLOTS.name }],
        `dnat ${family} to meta l4proto . th dport . ${text} map @port-slots`,
      ],
      // For IPv6, nft 1.0.6 counts too few registers, and aborts.
      ...(family === "ip6"
        ? []
        : ([
            [
              [
                {
                  kind: "vmap",
                  slots: 512,
                  hash: { fields, seed },
                  fields: ["daddr", ...DPORT],
                  map: CHAIN_SLOTS.name,
                },
              ],
              `${family} daddr . meta l4proto . th dport . ${text} vmap @chain-slots`,
            ],
          ] as const)),
    ] as const;
  });
}

const rulesOf = (family: NftFamily) => [...RULES[family], ...hashed(family)];

const CHAIN: NftHook = { type: "nat", hook: "prerouting", priority: -100 };
const SEEN: NftSet = { name: "seen", key: ["address"], isMap: false, timeoutSeconds: 90 };
const PORTS: NftSet = { name: "ports", key: ["protocol", "port"], isMap: true };

function asData(family: NftFamily): NftOperation[] {
  return [
    { kind: "add-table", comment: "a comment" },
    { kind: "add-set", set: SEEN },
    ...[PORTS, SLOTS, PORT_SLOTS, CHAIN_SLOTS].map((set): NftOperation => ({ kind: "add-set", set })),
    { kind: "add-chain", chain: { name: "other", comment: "another" } },
    { kind: "add-chain", chain: { name: "c", hook: CHAIN } },
    ...rulesOf(family).map(([statements, text]): NftOperation => {
      return { kind: "add-rule", chain: "c", rule: { statements, comment: text.slice(0, 60).replaceAll('"', "") } };
    }),
  ];
}

function asText(family: NftFamily): string {
  const type = family === "ip" ? "ipv4_addr" : "ipv6_addr";
  const portKey = `meta l4proto . th dport . numgen random mod 512 : ${family} daddr . th dport`;
  return [
    `add table ${family} ${TABLE} { comment "a comment" ; }`,
    `add set ${family} ${TABLE} seen { type ${type} ; flags dynamic,timeout ; timeout 90s ; }`,
    `add map ${family} ${TABLE} ports { type inet_proto . inet_service : verdict ; }`,
    `add map ${family} ${TABLE} slots { typeof ${family} daddr . ${portKey} ; }`,
    `add map ${family} ${TABLE} port-slots { typeof ${portKey} ; }`,
    `add map ${family} ${TABLE} chain-slots { typeof ${family} daddr . ${portKey.split(" : ")[0]} : verdict ; }`,
    `add chain ${family} ${TABLE} other { comment "another" ; }`,
    `add chain ${family} ${TABLE} c { type nat hook prerouting priority -100 ; }`,
    ...rulesOf(family).map(
      ([, text]) => `add rule ${family} ${TABLE} c ${text} comment "${text.slice(0, 60).replaceAll('"', "")}"`,
    ),
    "",
  ].join("\n");
}

inNetns(import.meta.url, { name: "nftexpr" }, () => {
  let client: NftablesClient;
  let ruleset: NetlinkRuleset;
  before(() => {
    client = openNftables();
    ruleset = openNetlinkRuleset();
  });
  after(async () => {
    await client.close();
    await ruleset.close();
  });
  beforeEach(() => execFileSync("nft", ["flush", "ruleset"]));
  const list = () => execFileSync("nft", ["list", "ruleset"], { encoding: "utf8" });

  for (const family of ["ip", "ip6"] as const) {
    test(`family ${family}`, async () => {
      execFileSync("nft", ["-f", "-"], { input: asText(family) });
      const [expected, expectedList] = [await rawTable(client, LAYOUTS[family].nfproto, TABLE), list()];
      execFileSync("nft", ["flush", "ruleset"]);
      await ruleset.open({ family, table: TABLE }).transact(asData(family));
      assert.equal(await rawTable(client, LAYOUTS[family].nfproto, TABLE), expected);
      assert.equal(list(), expectedList);
    });
  }

  describe("values that cannot be said to the kernel", () => {
    const wrong: readonly (readonly [string, NftOperation, RegExp])[] = [
      ["a key of another length", { kind: "delete-elements", set: PORTS, keys: [["tcp"]] }, /key of protocol \. port/],
      [
        "an address of another family",
        { kind: "add-rule", chain: "c", rule: { statements: [from("fd00::/64")] } },
        /fd00:: is no address of family ip/,
      ],
      ["a name with a zero byte", { kind: "flush-chain", chain: "a\0b" }, /zero byte/],
    ];
    for (const [what, operation, message] of wrong) {
      test(what, async () => {
        const nft = ruleset.open({ family: "ip", table: TABLE });
        const all: NftOperation[] = [{ kind: "add-table", comment: "" }, operation];
        await assert.rejects(nft.transact(all), { name: "NftError", code: "failed", operation: 1, message });
        assert.equal(list(), "");
      });
    }
  });
});
