/** What {@link Nftables} does with maps to targets of destination NAT, with slots, and with parts of addresses. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { IpAddress } from "../../../net/ip.ts";
import { NftError, type NftOperation } from "../nftables.ts";
import { elementKey, type NftElement, type NftFamily, type NftHook, type NftRule, type NftSet } from "../ruleset.ts";
import type { NftablesSubject } from "./nftables-subject.ts";

const ip = (text: string): IpAddress => text as IpAddress; // canonical literals below

const ENDPOINTS: NftSet = {
  name: "endpoints-2",
  key: ["address", "protocol", "port", "slot"],
  isMap: false,
  hasTargets: true,
  slots: 2,
  comment: "frontends with 2 endpoints",
};
const CLIENTS: NftSet = {
  name: "clients-10800",
  key: ["address", "address", "protocol", "port"],
  isMap: false,
  hasTargets: true,
  timeoutSeconds: 10800,
  size: 100_000,
};
const ALLOWED: NftSet = {
  name: "allowed",
  key: ["address", "protocol", "port", "address"],
  isMap: false,
};
const PLAIN: NftSet = { name: "plain", key: ["address", "protocol", "port"], isMap: false };
const PREROUTING: NftHook = { type: "nat", hook: "prerouting", priority: -100 };

/** One rule of each kind that uses such sets. */
const RULES: readonly NftRule[] = [
  {
    statements: [
      {
        kind: "lookup",
        fields: ["daddr", "l4proto", "dport", "saddr/25"],
        set: ALLOWED.name,
      },
      { kind: "verdict", verdict: { kind: "return" } },
    ],
  },
  {
    statements: [
      { kind: "l4proto", protocol: "tcp" },
      { kind: "lookup", fields: ["original-daddr", "l4proto", "original-dport"], set: PLAIN.name },
      {
        kind: "update-map",
        map: CLIENTS.name,
        key: ["saddr", "original-daddr", "l4proto", "original-dport"],
        target: ["reply-saddr", "reply-sport"],
      },
    ],
  },
  { statements: [{ kind: "map-dnat", fields: ["saddr", "daddr", "l4proto", "dport"], map: CLIENTS.name }] },
  { statements: [{ kind: "map-dnat", fields: ["daddr", "l4proto", "dport"], slots: 2, map: ENDPOINTS.name }] },
  ...([["saddr"], ["saddr", "sport"]] as const).map((fields): NftRule => {
    const hash = { fields, seed: 0xcafe_1234 };
    return {
      statements: [{ kind: "map-dnat", fields: ["daddr", "l4proto", "dport"], slots: 2, hash, map: ENDPOINTS.name }],
    };
  }),
];

const slot = (number: number, target: string, address = "10.96.0.1"): NftElement => ({
  key: [ip(address), "tcp", 80, number],
  target: { ip: ip(target), port: 8080 },
  comment: "ns/web:http",
});

const add = (set: NftSet, ...elements: NftElement[]): NftOperation => ({ kind: "add-elements", set, elements });
const rule = (one: NftRule): NftOperation => ({ kind: "add-rule", chain: "nat-prerouting", rule: one });

const HEAD: readonly NftOperation[] = [
  { kind: "add-table", comment: "rules for kube-proxy" },
  ...[ENDPOINTS, CLIENTS, ALLOWED, PLAIN].map((set): NftOperation => ({ kind: "add-set", set })),
  { kind: "add-chain", chain: { name: "nat-prerouting", hook: PREROUTING } },
  ...RULES.map(rule),
];

const EXAMPLE: readonly NftOperation[] = [
  ...HEAD,
  add(ENDPOINTS, slot(0, "10.180.0.1"), slot(1, "10.180.0.2")),
  add(ALLOWED, { key: [ip("10.96.0.1"), "tcp", 80, ip("10.0.0.128")], comment: "ns/web:http" }),
];

/** The operations that create a table with all of these, in either family. */
export function targetMapExample(family: NftFamily): readonly NftOperation[] {
  if (family === "ip") return EXAMPLE;
  return [
    ...HEAD,
    add(ENDPOINTS, slot(0, "fd00::1", "fd00:96::1")),
    add(ALLOWED, { key: [ip("fd00:96::1"), "tcp", 80, ip("2001:db8::")] }),
  ];
}

const text = ({ key, target, comment }: NftElement): string =>
  `${elementKey(key)} : ${target?.ip ?? ""}.${target?.port ?? ""} ${comment ?? ""}`;

export function targetMapContract({ name, open, skip }: NftablesSubject): void {
  describe(`maps to targets: ${name}`, { skip }, () => {
    test("are read back as they were written", async (t) => {
      const { nft } = await open(t);
      await nft.transact(EXAMPLE);
      const sets = (await nft.read())?.sets;
      assert.deepEqual(sets?.get(ENDPOINTS.name)?.elements.map(text).sort(), [
        "10.96.0.1 . tcp . 80 . 0 : 10.180.0.1.8080 ns/web:http",
        "10.96.0.1 . tcp . 80 . 1 : 10.180.0.2.8080 ns/web:http",
      ]);
      assert.deepEqual(sets.get(ALLOWED.name)?.elements.map(text), [
        "10.96.0.1 . tcp . 80 . 10.0.0.128 : . ns/web:http",
      ]);
      for (const set of [ENDPOINTS, CLIENTS, ALLOWED, PLAIN]) {
        const { elements: _elements, ...kind } = sets.get(set.name) ?? assert.fail(set.name);
        const { key, isMap, hasTargets, timeoutSeconds } = set;
        assert.deepEqual(kind, { key, isMap, ...(hasTargets && { hasTargets }), timeoutSeconds }, set.name);
      }
    });

    test("may be added again", async (t) => {
      const { nft } = await open(t);
      await nft.transact(EXAMPLE);
      await nft.transact(EXAMPLE.filter(({ kind }) => kind !== "add-rule"));
      assert.equal((await nft.readElements(ENDPOINTS))?.length, 2);
    });

    test("change in one transaction: deleted, and added with another target", async (t) => {
      const { nft } = await open(t);
      await nft.transact(EXAMPLE);
      await nft.transact([
        { kind: "delete-elements", set: ENDPOINTS, keys: [slot(1, "").key] },
        { kind: "delete-elements", set: ALLOWED, keys: [[ip("10.96.0.1"), "tcp", 80, ip("10.0.0.128")]] },
        add(ENDPOINTS, slot(1, "10.180.0.9")),
      ]);
      assert.deepEqual((await nft.readElements(ENDPOINTS))?.map(({ target }) => target?.ip).sort(), [
        "10.180.0.1",
        "10.180.0.9",
      ]);
      assert.deepEqual(await nft.readElements(ALLOWED), []);
    });

    const refused: readonly (readonly [what: string, operation: NftOperation])[] = [
      ["a key that is there with another target", add(ENDPOINTS, slot(1, "10.180.0.9"))],
      ["a map of the name with other values", { kind: "add-set", set: { ...PLAIN, hasTargets: true } }],
      [
        "translation by a set",
        rule({ statements: [{ kind: "map-dnat", fields: ["daddr", "l4proto", "dport"], map: PLAIN.name }] }),
      ],
    ];
    for (const [what, operation] of refused) {
      test(`refused: ${what}`, async (t) => {
        const { nft } = await open(t);
        await nft.transact(EXAMPLE);
        await assert.rejects(nft.transact([operation]), (error) => error instanceof NftError && error.operation === 0);
      });
    }
  });
}
