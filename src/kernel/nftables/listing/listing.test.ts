/** Listings of other releases and other programs, and what is cut, pasted or not known. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { named } from "../json.ts";
import { iptablesTables, isListing, readListing } from "./listing.ts";

/** The statements of one rule, in a chain. */
function statements(rule: string): unknown {
  const { objects, gaps } = readListing(`table ip t {\n\tchain c {\n\t\t${rule}\n\t}\n}\n`);
  assert.deepEqual(gaps, []);
  return bodies(objects, "rule")[0]?.expr;
}

function bodies(objects: readonly unknown[], kind: string): Record<string, unknown>[] {
  return objects.flatMap((object) => {
    const found = named(object);
    return found?.name === kind ? [found.body as Record<string, unknown>] : [];
  });
}

const payload = (protocol: string, field: string) => ({ payload: { protocol, field } });
const equals = (left: unknown, right: unknown) => ({ match: { op: "==", left, right } });
const MARK = { meta: { key: "mark" } };

const OLD_FORMS: readonly (readonly [rule: string, expr: readonly unknown[]])[] = [
  ["tcp dport ssh accept", [equals(payload("tcp", "dport"), 22), { accept: null }]],
  ["tcp dport { http, https }", [equals(payload("tcp", "dport"), { set: [80, 443] })]],
  ["mark and 0x4000 == 0x4000 accept", [equals({ "&": [MARK, 0x4000] }, 0x4000), { accept: null }]],
  ["meta mark set mark or 0x4000", [{ mangle: { key: MARK, value: { "|": [MARK, 0x4000] } } }]],
  ["limit rate 3/hour", [{ limit: { rate: 3, burst: 5, per: "hour" } }]],
  ["reject with icmp type port-unreachable", [{ reject: { type: "icmp", expr: "port-unreachable" } }]],
  ["dnat to 10.0.0.1:http", [{ dnat: { addr: "10.0.0.1", port: 80 } }]],
  ["queue num 1-3 bypass,fanout", [{ queue: { num: { range: [1, 3] }, flags: ["bypass", "fanout"] } }]],
  [
    "ip daddr 10.0.0.1 # xt_comment # xt_set jump x",
    [
      equals(payload("ip", "daddr"), "10.0.0.1"),
      { xt: { type: "match", name: "comment" } },
      { xt: { type: "match", name: "set" } },
      { jump: { target: "x" } },
    ],
  ],
  [
    'xt match "comment" counter packets 1 bytes 2 xt target "LOG"',
    [
      { xt: { type: "match", name: "comment" } },
      { counter: { packets: 1, bytes: 2 } },
      { xt: { type: "target", name: "LOG" } },
    ],
  ],
  ["ct state 0x2,0x4", [{ match: { op: "in", left: { ct: { key: "state" } }, right: [2, 4] } }]],
  ["vxlan ip saddr 10.0.0.1", [equals({ payload: { tunnel: "vxlan", protocol: "ip", field: "saddr" } }, "10.0.0.1")]],
];

for (const [rule, expr] of OLD_FORMS) test(rule, () => assert.deepEqual(statements(rule), expr));

test("what is not understood is kept with its line, and nothing of it is left out", () => {
  for (const text of [
    "weird thing 5",
    "tcp dport gibberish",
    "ip saddr web.example",
    "update @m { ip saddr weird 1 }",
  ]) {
    const expr = statements(`ip protocol tcp ${text} accept comment "c"`);
    assert.deepEqual(expr, [
      equals(payload("ip", "protocol"), "tcp"),
      { opaque: `line 3: ${text} accept comment "c"` },
    ]);
  }
});

test("an element that is not understood does not hide the others", () => {
  const set =
    "table ip t {\n\tset s {\n\t\ttype inet_service\n\t\telements = { http,\n\t\t\t     gibberish, 8080-8090 }\n\t}\n}\n";
  const [body] = bodies(readListing(set).objects, "set");
  assert.deepEqual(body?.elem, [80, { opaque: "line 4: gibberish" }, { range: [8080, 8090] }]);
});

const TABLE = `table ip nat { # handle 3
\tset s { # handle 4
\t\ttype ipv4_addr
\t\tflags interval,timeout
\t\telements = { 10.0.0.0/8 timeout 1m expires 59s996ms, 192.0.2.1-192.0.2.9 comment "a, { b",
\t\t\t     198.51.100.1, 198.51.100.15 }
\t}

\tchain pre { # handle 1
\t\ttype nat hook prerouting priority dstnat + 5; policy accept;
\t\tip daddr @s jump web # handle 6
\t\tip daddr 10.0.0.1 jump web # handle 7
\t}
}
`;

test("prompts, code fences and blanks around it do not matter", () => {
  const pasted = `\`\`\`\nroot@node-a:~# nft -a list ruleset\n${TABLE.replaceAll("\t", "  ")}root@node-a:~# \n\`\`\`\n`;
  assert.ok(isListing(pasted));
  assert.deepEqual(readListing(pasted), readListing(TABLE));
  assert.deepEqual(readListing(TABLE).gaps, []);
});

test("handles are read, which tell the order of chains, and which rule of the kernel one is", () => {
  const { objects } = readListing(TABLE);
  const handles = (kind: "chain" | "rule") => bodies(objects, kind).map(({ handle }) => handle);
  assert.deepEqual([handles("chain"), handles("rule")], [[1], [6, 7]]);
  const without = bodies(readListing(TABLE.replaceAll(/ # handle \d+/g, "")).objects, "rule");
  assert.ok(without.length === 2 && without.every((rule) => !("handle" in rule)));
});

test("wherever it is cut, this is said, what is there counts, and what may lack its end does not", () => {
  const whole = readListing(TABLE);
  const rules = bodies(whole.objects, "rule").map(({ expr }) => JSON.stringify(expr));
  const elements = bodies(whole.objects, "set")
    .flatMap(({ elem }) => elem)
    .map((elem) => JSON.stringify(elem));
  for (let end = "table ip nat {".length; end < TABLE.trimEnd().length; end += 1) {
    const { objects, gaps } = readListing(TABLE.slice(0, end));
    assert.match(gaps.at(-1) ?? "", /^line \d+: the listing ends, but the .* does not end: it is cut there$/);
    const isOpen = /"opaque":"line \d+: the rest of the/.test(JSON.stringify(objects));
    assert.equal(isOpen, !/the table/.test(gaps.at(-1)?.split(" of ")[0] ?? ""), TABLE.slice(0, end));
    for (const { expr } of bodies(objects, "rule")) {
      const text = JSON.stringify(expr);
      assert.ok(text.includes("opaque") || rules.includes(text), text);
    }
    for (const { elem } of bodies(objects, "set")) {
      for (const one of [elem ?? []].flat()) {
        const text = JSON.stringify(one);
        assert.ok(text.includes("opaque") || elements.includes(text), text);
      }
    }
  }
});

test("a hook that is not understood, and a quote that does not end, are gaps", () => {
  for (const [whole, damaged] of [
    ["hook prerouting priority dstnat + 5; policy accept;", "hook prerou"],
    ["priority dstnat + 5;", "priority later;"],
    ["flags interval,timeout", "ip daddr @s jump web"],
    ['comment "a, { b"', 'comment "a, b'],
  ] as const) {
    const { gaps } = readListing(TABLE.replace(whole, damaged));
    assert.match(gaps.join(), /^line \d+: .* is not understood, and something may be missing there$/, damaged);
  }
});

test("a part that is missing in the middle is a gap", () => {
  const lines = TABLE.split("\n");
  const { gaps } = readListing([...lines.slice(0, 5), "...", ...lines.slice(8)].join("\n"));
  assert.deepEqual(gaps, ["line 7: the chain pre begins, but the set s does not end: it is cut there"]);
  assert.match(readListing(TABLE.replace("\n\n", "\n\t[snip]\n")).gaps.join(), /^line 8: "\[snip\]" is not understood/);
});

test("tables that sleep, other hooks, and tables of iptables", () => {
  const { objects, ofIptables } = readListing(
    "# Warning: table ip mangle is managed by iptables-nft, do not touch!\n" +
      "table ip mangle {\n}\ntable bridge b {\n\tflags dormant\n\tchain c {\n" +
      '\t\ttype filter hook ingress devices = { "a", "b" } priority filter - 1; policy drop;\n\t}\n}\n' +
      "table ip nat {\n\tchain OUTPUT {\n\t\ttype nat hook output priority -100; policy accept;\n\t}\n}\n",
  );
  assert.deepEqual(bodies(objects, "table")[1], { family: "bridge", name: "b", flags: ["dormant"] });
  const [chain] = bodies(objects, "chain");
  assert.deepEqual([chain?.prio, chain?.hook, chain?.policy], [-201, "ingress", "drop"]);
  assert.deepEqual([...iptablesTables(objects, ofIptables)], ["ip mangle", "ip nat"]);
});

test("a listing that is cut anywhere is read as far as it goes", () => {
  const listing = `table ip t {
	set s {
		type ipv4_addr
		comment "c"
		elements = { 10.0.0.1 comment "a b", 10.0.0.2 }
	}
	chain x {
		type filter hook input priority filter; policy accept;
		ip saddr @s tcp dport { 80, 443 } counter packets 0 bytes 0 drop comment "d e"
		reject with icmp host-unreachable comment "f"
	}
}
`;
  for (let at = 0; at < listing.length - 2; at++) assert.doesNotThrow(() => readListing(listing.slice(0, at)), `${at}`);
});

test("a table in one line does not read as an empty one", () => {
  for (const text of [
    "table ip f { chain c { type filter hook forward priority 1; drop; }; }",
    'table ip f { comment "x"; }',
  ])
    assert.match(
      readListing(`${text}\n`).gaps.join(),
      /^line 1: "table ip f \{ c.*" is not as nft lists a table/,
      text,
    );
  for (const text of ["table ip f { }", "table ip f { # handle 1\n}", "table ip f {}"])
    assert.deepEqual(readListing(`${text}\n`).gaps, [], text);
});
