/** Dumps with rules by the ten thousand: rules that do the same are one class, whichever rule of a long chain a packet meets. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ip } from "../../src/model/testing/records.ts";
import { classesOf } from "../../src/tools/prove/classes.ts";
import { fateText } from "../../src/tools/prove/fate.ts";
import { rootClasses } from "../../src/tools/prove/proof.ts";
import { ruleFates, rulesSide } from "../../src/tools/prove/sides.ts";
import { type Dump, recogniseDump } from "../../src/trace/dump/recognise.ts";
import { nodeFacts } from "../../src/trace/facts.ts";
import type { Packet } from "../../src/trace/packet.ts";
import { prove } from "../../testkit/support/prove.ts";

const OWN = [ip("10.200.0.2"), ip("127.0.0.1")];
const MANY = 20_000;
const address = (number: number) => `10.1.${number >> 8}.${number & 255}`;

function saved(
  chain: string,
  rules: readonly string[],
  others: readonly string[] = [],
  more: readonly string[] = [],
): Dump {
  const chains = ["INPUT", "FORWARD", "OUTPUT"].map((name) => `:${name} ACCEPT [0:0]`);
  chains.push(...more.map((name) => `:${name} - [0:0]`));
  const lines = rules.map((rule) => `-A ${chain} ${rule}`);
  return recogniseDump(["*filter", ...chains, ":OTHER - [0:0]", ...lines, ...others, "COMMIT", ""].join("\n"), "rules");
}

function listed(rules: readonly (readonly unknown[])[], sets: readonly unknown[] = []): Dump {
  const place = { family: "inet", table: "other" };
  const hook = { type: "filter", hook: "forward", prio: 0, policy: "accept" };
  const nftables = [
    { metainfo: { version: "1.1.3", json_schema_version: 1 } },
    { table: { family: "inet", name: "other" } },
    ...sets,
    { chain: { ...place, name: "forward", ...hook } },
    ...rules.map((expr) => ({ rule: { ...place, chain: "forward", expr } })),
  ];
  return recogniseDump(JSON.stringify({ nftables }), "rules");
}

const from = (value: unknown) => ({
  match: { op: "==", left: { payload: { protocol: "ip", field: "saddr" } }, right: value },
});
const each = (rule: (number: number) => string) => Array.from({ length: MANY }, (_, number) => rule(number));

function provedOf(dump: Dump) {
  return prove("IPv4", OWN, [rulesSide("nothing", [], "IPv4", OWN), rulesSide("rules", [dump], "IPv4", OWN)]);
}

function fateOf(dump: Dump, source: string): string {
  const facts = nodeFacts({ addresses: OWN });
  for (const { packets, fates } of classesOf("IPv4", rootClasses("IPv4", OWN), [ruleFates([dump], "IPv4", facts)])) {
    const isIt = packets.source.has(source) && packets.destination.has("10.9.0.1") && packets.inInterface.has("eth0");
    if (isIt && packets.destinationPort.has(80) && packets.protocol.has("tcp")) return fateText(fates[0] ?? new Map());
  }
  return "in no class";
}

describe("rules for one address each", () => {
  const cases: readonly (readonly [name: string, dump: () => Dump, dropped: number, passed: number])[] = [
    [
      "that drop",
      () =>
        saved(
          "FORWARD",
          each((number) => `-s ${address(number)}/32 -j DROP`),
        ),
      4_711,
      MANY,
    ],
    [
      "that drop or accept",
      () =>
        saved(
          "FORWARD",
          each((number) => `-s ${address(number)}/32 -j ${number % 3 ? "DROP" : "ACCEPT"}`),
        ),
      ...([1_000, 999] as const),
    ],
    [
      "with comments, from and to",
      () =>
        saved("FORWARD", [
          ...each((number) => `-s ${address(number)}/32 -m comment --comment "no ${number}" -j DROP`),
          ...each((number) => `-d ${address(number)}/32 -j DROP`),
        ]),
      ...([3, MANY] as const),
    ],
    [
      "of nft, with counters",
      () =>
        listed(
          Array.from({ length: MANY }, (_, number) => [
            ...[from(address(number)), { counter: { packets: number, bytes: 0 } }],
            number % 3 ? { drop: null } : { accept: null },
          ]),
        ),
      ...([1_000, 999] as const),
    ],
  ];
  for (const [name, dump, dropped, passed] of cases) {
    test(name, () => {
      const rules = dump();
      assert.ok(provedOf(rules).classes < 100);
      assert.deepEqual(
        [dropped, passed].map((number) => fateOf(rules, address(number))),
        ["dropped", "left alone"],
      );
    });
  }
});

describe("a hundred thousand things that differ are answered in bounded time, and what is not tried is named", () => {
  const most = 100_000;
  const place = { family: "inet", table: "other" };
  const all = <T>(of: (number: number) => T): T[] => Array.from({ length: most }, (_, number) => of(number));
  const own = (number: number) => `10.${64 + (number >> 16)}.${(number >> 8) & 255}.${number & 255}`;
  const dport = { payload: { protocol: "tcp", field: "dport" } };
  const ends = { concat: [{ payload: { protocol: "ip", field: "daddr" } }, dport] };
  const port = (number: number) => 1 + ((number * 7_919) % 60_000);
  const cases: Readonly<Record<string, () => Dump>> = {
    "jumps to a chain each": () =>
      saved(
        "FORWARD",
        all((number) => `-s ${own(number)}/32 -j C${number}`),
        all((number) => `-A C${number} -p tcp -m tcp --dport ${port(number)} -j DROP`),
        all((number) => `C${number}`),
      ),
    "jumps without a condition": () =>
      saved(
        "FORWARD",
        all(() => "-j OTHER"),
        ["-A OTHER -p tcp -m tcp --dport 22 -j DROP"],
      ),
    "a map of addresses and ports": () =>
      listed(
        [[{ vmap: { key: ends, data: "@m" } }]],
        [
          {
            map: {
              ...{ ...place, name: "m", type: ["ipv4_addr", "inet_service"], map: "verdict" },
              elem: all((number) => [
                { concat: [own(number), port(number)] },
                number % 3 ? { drop: null } : { accept: null },
              ]),
            },
          },
        ],
      ),
    "a set of ranges of both": () =>
      listed(
        [[{ match: { op: "==", left: ends, right: "@s" } }, { drop: null }]],
        [
          {
            set: {
              ...{ ...place, name: "s", type: ["ipv4_addr", "inet_service"], flags: ["interval"] },
              elem: all((number) => ({
                concat: [
                  { prefix: { addr: own(4 * number), len: 30 } },
                  { range: [port(number), 60_001 + (number % 50)] },
                ],
              })),
            },
          },
        ],
      ),
    "ranges of ports that overlap": () =>
      listed(
        [[{ match: { op: "==", left: dport, right: "@s" } }, { drop: null }]],
        [
          {
            set: {
              ...{ ...place, name: "s", type: "inet_service", flags: ["interval"] },
              elem: all((number) => ({ range: [port(number), 60_001 + (number % 50)] })),
            },
          },
        ],
      ),
  };
  for (const [name, dump] of Object.entries(cases)) {
    test(name, () => {
      const { classes, differing, unprovable } = provedOf(dump());
      if (unprovable === undefined) assert.ok(differing > 0);
      else assert.match(unprovable, /not all packets were tried|overlap too often/);
      assert.ok(classes < most, `${classes} classes`);
    });
  }
});

test("rules in another order are told apart, and those with more conditions", () => {
  const rules = each((number) => `-s ${address(number)}/32 ${number % 2 ? "-p tcp -m tcp --dport 80 " : ""}-j DROP`);
  const dump = saved(
    "FORWARD",
    ["-s 10.1.0.6/32 -j ACCEPT", "-s 10.1.0.0/29 -j OTHER", ...rules],
    ["-A OTHER -s 10.1.0.4/32 -j ACCEPT", "-A OTHER -s 10.1.0.5/32 -p tcp -m tcp --dport 81 -j ACCEPT"],
  );
  const fates = [4, 5, 6, 7, 8].map((number) => fateOf(dump, address(number)));
  assert.deepEqual(fates, ["left alone", "dropped", "left alone", "dropped", "dropped"]);
});

test("rules that compare with a set are not those of one address", () => {
  const place = { family: "inet", table: "other" };
  const set = { ...place, name: "banned", type: "ipv4_addr", elem: [address(7)] };
  const dump = listed([...Array.from({ length: 20 }, () => [from("@banned"), { drop: null }])], [{ set }]);
  assert.deepEqual(
    [7, 8].map((number) => fateOf(dump, address(number))),
    ["dropped", "left alone"],
  );
});

test("an observed way asks nothing that it does not depend on", () => {
  const facts = nodeFacts({ addresses: OWN });
  const dump = saved("FORWARD", ["-j ACCEPT", ...each((number) => `-s ${address(number)}/32 -j DROP`)]);
  const asked: Packet[] = [];
  for (const { example } of classesOf("IPv4", rootClasses("IPv4", OWN), [ruleFates([dump], "IPv4", facts)]))
    asked.push(example);
  assert.ok(asked.length < 30);
});
