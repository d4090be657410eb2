/** Listings of other programs' tables, as nft 1.0.6 prints them, and listings that are cut. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { readRule } from "./rule.ts";
import { readNftText } from "./ruleset.ts";
import { NftTextError, WordReader, wordsOf } from "./words.ts";

const RULES: readonly (readonly [text: string, expr: readonly unknown[]])[] = [
  [
    "ct state { invalid, new } counter packets 0 bytes 0 drop",
    [
      { match: { op: "==", left: { ct: { key: "state" } }, right: { set: ["invalid", "new"] } } },
      { counter: null },
      { drop: null },
    ],
  ],
  [
    'iifname "eth*" tcp dport { 22, 80-90 } limit rate 5/minute burst 7 packets accept',
    [
      { match: { op: "==", left: { meta: { key: "iifname" } }, right: "eth*" } },
      {
        match: {
          op: "==",
          left: { payload: { protocol: "tcp", field: "dport" } },
          right: { set: [22, { range: [80, 90] }] },
        },
      },
      { limit: { rate: 5, per: "minute", burst: 7 } },
      { accept: null },
    ],
  ],
  [
    'tcp flags syn / syn,ack log prefix "a: { b" level info',
    [
      {
        match: {
          op: "==",
          left: { "&": [{ payload: { protocol: "tcp", field: "flags" } }, ["syn", "ack"]] },
          right: "syn",
        },
      },
      { log: { prefix: "a: { b", level: "info" } },
    ],
  ],
  [
    "tcp dport 99 reject with tcp reset",
    [
      { match: { op: "==", left: { payload: { protocol: "tcp", field: "dport" } }, right: 99 } },
      { reject: { type: "tcp reset" } },
    ],
  ],
  [
    "ip6 daddr fd00::/64 dnat ip6 to [fd00::1]:5353",
    [
      {
        match: {
          op: "==",
          left: { payload: { protocol: "ip6", field: "daddr" } },
          right: { prefix: { addr: "fd00::", len: 64 } },
        },
      },
      { dnat: { family: "ip6", addr: "fd00::1", port: 5353 } },
    ],
  ],
  [
    "fib daddr . iif type != local drop",
    [
      { match: { op: "!=", left: { fib: { result: "type", flags: ["daddr", "iif"] } }, right: "local" } },
      { drop: null },
    ],
  ],
  [
    "snat to 10.0.0.2-10.0.0.9 random,persistent",
    [{ snat: { addr: { range: ["10.0.0.2", "10.0.0.9"] }, flags: ["random", "persistent"] } }],
  ],
];

for (const [text, expr] of RULES) {
  test(text, () => assert.deepEqual(readRule(new WordReader(wordsOf(text))), { expr }));
}

test("what is not understood stays as it is, to the end of the rule", () => {
  for (const text of [
    "ct count over 20 drop",
    "queue flags bypass to 1-3",
    "quota over 10 mbytes drop",
    "update @m { ip saddr limit rate 1/second } accept",
    "@ll,0,48 1 accept",
  ]) {
    const { expr } = readRule(new WordReader(wordsOf(`tcp dport 1 ${text} comment "c"`)));
    assert.deepEqual(expr.slice(1), [{ opaque: `${text} comment "c"` }]);
  }
});

const TABLE = `table inet other { # handle 1
\tcounter c { # handle 3
\t\tpackets 1 bytes 2
\t}

\tset s {
\t\ttype ipv4_addr
\t\tflags interval,timeout
\t\ttimeout 1h30m
\t\telements = { 10.0.0.0/8 timeout 1m expires 59s996ms, 192.0.2.1-192.0.2.9 comment "a, b",
\t\t\t     198.51.100.1 }
\t}

\tchain in { # handle 2
\t\ttype filter hook input priority filter + 10; policy drop;
\t\taccept # handle 6
\t}
}
`;

test("tables with all that they have; handles of nft -a are passed over", () => {
  const place = { family: "inet", table: "other" };
  assert.deepEqual(readNftText(TABLE), [
    { table: { family: "inet", name: "other" } },
    {
      set: {
        ...place,
        name: "s",
        flags: ["interval", "timeout"],
        timeout: 5400,
        elem: [
          { elem: { val: { prefix: { addr: "10.0.0.0", len: 8 } }, timeout: 60, expires: 59 } },
          { elem: { val: { range: ["192.0.2.1", "192.0.2.9"] }, comment: "a, b" } },
          "198.51.100.1",
        ],
      },
    },
    { chain: { ...place, name: "in", type: "filter", hook: "input", prio: 10, policy: "drop" } },
    { rule: { ...place, chain: "in", expr: [{ accept: null }] } },
  ]);
});

test("a listing that is cut is refused, wherever", () => {
  for (let lines = 1; lines < TABLE.trimEnd().split("\n").length; lines += 1) {
    const part = TABLE.split("\n").slice(0, lines).join("\n");
    assert.throws(() => readNftText(part), NftTextError, part);
  }
});

test("of tables of iptables, nft leaves conditions out: every rule is in doubt", () => {
  const head = "# Warning: table ip nat is managed by iptables-nft, do not touch!\n";
  const rules = readNftText(`${head}table ip nat {\n\tchain A {\n\t\tcounter packets 0 bytes 0 jump B\n\t}\n}\n`);
  assert.match(JSON.stringify(rules), /\[\{"xt":\{"type":"match","name":"of iptables"\}\},\{"counter":null\},\{"jump"/);
});
