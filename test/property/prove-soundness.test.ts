/** What a proof must not pass over: matches, targets, chains and sets that are not understood, cut by whichever program wrote them. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ip } from "../../src/model/testing/records.ts";
import { rulesSide } from "../../src/tools/prove/sides.ts";
import { judgeSaved, savedTables } from "../../src/trace/dump/iptables-nft.ts";
import { type Dump, listedObjects, recogniseDump } from "../../src/trace/dump/recognise.ts";
import { prove } from "../../testkit/support/prove.ts";

const OWN = [ip("10.200.0.2"), ip("127.0.0.1")];

/** Beside no rules at all. */
function provedOf(dumps: readonly Dump[]) {
  return prove("IPv4", OWN, [rulesSide("nothing", [], "IPv4", OWN), rulesSide("rules", dumps, "IPv4", OWN)]);
}

function saved(table: string, ...rules: string[]): Dump[] {
  const chains = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"].map((chain) => `:${chain} ACCEPT [0:0]`);
  return [recogniseDump([`*${table}`, ...chains, ...rules, "COMMIT", ""].join("\n"), "rules")];
}

describe("a rule of iptables that is not understood cannot be proved", () => {
  const cases: readonly (readonly [table: string, rule: string])[] = [
    ["filter", "-A FORWARD -m u32 --u32 0x0=0x1 -j DROP"],
    ["filter", "-A FORWARD -m limit --limit 5/min -j DROP"],
    ["filter", "-A FORWARD -m connlimit --connlimit-above 3 -j REJECT"],
    ["filter", '-A FORWARD -m string --string "x" --algo bm -j DROP'],
    ["filter", "-A FORWARD -m time --timestart 01:00 -j DROP"],
    ["filter", "-A OUTPUT -m owner --uid-owner 0 -j DROP"],
    ["filter", "-A FORWARD -m set --match-set other src -j DROP"],
    [
      "filter",
      "-A FORWARD -m recent --rcheck --seconds 10 --hitcount 3 --name x --mask 255.255.255.255 --rsource -j DROP",
    ],
    ["filter", "-A FORWARD -j NFQUEUE --queue-num 0"],
    ["mangle", "-A PREROUTING -j TPROXY --on-port 1 --on-ip 127.0.0.1"],
    ["nat", "-A PREROUTING -j DNAT --to-destination 10.0.0.1-10.0.0.9"],
    ["nat", "-A PREROUTING -p tcp -j REDIRECT --to-ports 8000-8010"],
    ["filter", "-A FORWARD -j OTHER"],
  ];
  for (const [table, rule] of cases) {
    test(rule, () => {
      const { unprovable } = provedOf(saved(table, rule));
      assert.ok(unprovable !== undefined, "equal, or different");
    });
  }

  test("one that leaves packets as they are, or takes them out of connection tracking, can be", () => {
    const rules = [
      ["filter", '-A FORWARD -p tcp -j LOG --log-prefix "a -j DROP"'],
      ["raw", "-A PREROUTING -j CT --notrack"],
      ["mangle", "-A FORWARD -j TTL --ttl-inc 1"],
      ["filter", "-A FORWARD -p tcp -m tcp --dport 23 -j SET --add-set seen src"],
      ["filter", "-A FORWARD -m limit --limit 5/min -j ACCEPT"],
    ];
    for (const [table = "", rule = ""] of rules) assert.equal(provedOf(saved(table, rule)).unprovable, undefined, rule);
  });

  test("marks that pass through the connection are told apart", () => {
    const rules = (bit: string) =>
      saved(
        "mangle",
        `-A PREROUTING -j MARK --set-xmark ${bit}/0xff`,
        "-A PREROUTING -j CONNMARK --save-mark --nfmask 0xff --ctmask 0xff",
        "-A PREROUTING -j MARK --set-xmark 0x0/0xffffffff",
        "-A PREROUTING -j CONNMARK --restore-mark --nfmask 0x1 --ctmask 0x1",
        "-A FORWARD -m mark --mark 0x1/0x1 -j DROP",
      );
    assert.ok(provedOf(rules("0x3")).differing > 0);
    assert.deepEqual([provedOf(rules("0x2")).differing, provedOf(rules("0x2")).unprovable], [0, undefined]);
    const shifted = "-A FORWARD -j CONNMARK --restore-mark --nfmask 0x1 --ctmask 0x1 --left-shift-mark 2";
    assert.match(provedOf(saved("mangle", shifted)).unprovable ?? "", /left-shift-mark 2" is not understood/);
  });

  test("one that no packet meets harms nothing", () => {
    assert.equal(
      provedOf(saved("filter", "-A FORWARD -j ACCEPT", "-A FORWARD -m u32 --u32 0x0=0x1 -j DROP")).differing,
      0,
    );
  });
});

const IN_CHAIN = (expr: readonly unknown[], chain: object = {}): Dump[] => {
  const base = {
    family: "inet",
    table: "other",
    name: "in",
    type: "filter",
    hook: "prerouting",
    prio: -200,
    policy: "accept",
  };
  const objects = [
    { table: { family: "inet", name: "other" } },
    { chain: { ...base, ...chain } },
    { rule: { family: "inet", table: "other", chain: "in", expr } },
  ];
  return [{ kind: "nftables", objects }];
};

const HEADS: Readonly<Record<string, object>> = {
  in: { type: "filter", hook: "prerouting", prio: -200, policy: "accept" },
  nat: { type: "nat", hook: "prerouting", prio: -100, policy: "accept" },
  forward: { type: "filter", hook: "forward", prio: 0, policy: "accept" },
  out: { type: "nat", hook: "postrouting", prio: 100, policy: "accept" },
  check: {},
};

/** A table of {@link HEADS} with these rules. */
function inChains(chains: Readonly<Record<string, readonly (readonly unknown[])[]>>): Dump[] {
  const place = { family: "ip", table: "other" };
  const objects = Object.entries(chains).flatMap(([name, rules]) => [
    { chain: { ...place, name, ...HEADS[name] } },
    ...rules.map((expr) => ({ rule: { ...place, chain: name, expr } })),
  ]);
  return [{ kind: "nftables", objects: [{ table: { family: "ip", name: "other" } }, ...objects] }];
}

describe("a statement of nft that is not understood cannot be proved", () => {
  const match = (left: unknown, right: unknown) => ({ match: { op: "==", left, right } });
  const payload = (field: string) => ({ payload: { protocol: "ip", field } });
  const cases: Readonly<Record<string, readonly unknown[]>> = {
    "a rate": [{ limit: { rate: 5, per: "second" } }, { drop: null }],
    "a rate of each client": [
      {
        set: {
          op: "add",
          elem: payload("saddr"),
          set: "@seen",
          stmt: [{ limit: { rate: 5, per: "minute", inv: true } }],
        },
      },
      { drop: null },
    ],
    "the same, as nft 1.0.6 prints it": ["add @seen { ip saddr limit rate over 5/minute }", { drop: null }],
    "a quota": [{ quota: { val: 5, val_unit: "bytes" } }, { drop: null }],
    "a user": [match({ meta: { key: "skuid" } }, 0), { drop: null }],
    "a TCP flag": [match({ payload: { protocol: "tcp", field: "flags" } }, "syn"), { drop: null }],
    "raw bytes": [match({ payload: { base: "nh", offset: 0, len: 8 } }, 69), { drop: null }],
    "a queue": [{ queue: { num: 1 } }],
    "a transparent proxy": [{ tproxy: { port: 1 } }],
    "a set that is missing": [match({ payload: { protocol: "ip", field: "saddr" } }, "@none"), { drop: null }],
    "a time": [match({ meta: { key: "hour" } }, "17:00"), { drop: null }],
    "a map's value beside another": [
      match(
        { concat: [{ map: { key: payload("daddr"), data: { set: [["10.9.0.1", "10.0.0.2"]] } } }, payload("saddr")] },
        { set: [{ concat: ["10.0.0.2", "10.0.0.5"] }] },
      ),
      { drop: null },
    ],
    "a range of first bits": [
      match({ "&": [payload("saddr"), "255.255.255.0"] }, { range: ["10.0.0.0", "10.0.5.3"] }),
      { drop: null },
    ],
    "a packet type": [{ mangle: { key: { meta: { key: "pkttype" } }, value: "broadcast" } }],
    "a lifetime": [{ mangle: { key: { payload: { protocol: "ip", field: "ttl" } }, value: 1 } }],
    "a frame": [match({ payload: { protocol: "ether", field: "saddr" } }, "02:00:00:00:00:01"), { drop: null }],
  };
  for (const [name, expr] of Object.entries(cases)) {
    test(name, () => assert.ok(provedOf(IN_CHAIN(expr)).unprovable !== undefined, "equal, or different"));
  }

  test("one that changes what no rule of a proxy looks at, as routers do for tunnels, is none of these", () => {
    const clamped = {
      mangle: { key: { "tcp option": { name: "maxseg", field: "size" } }, value: { rt: { key: "mtu" } } },
    };
    const classed = { mangle: { key: payload("dscp"), value: "cs1" } };
    for (const statement of [clamped, classed]) {
      const { unprovable, differing } = provedOf(IN_CHAIN([statement]));
      assert.deepEqual([unprovable, differing], [undefined, 0]);
    }
    const moved = { mangle: { key: payload("daddr"), value: "10.0.0.7" } };
    assert.ok(provedOf(IN_CHAIN([moved])).unprovable !== undefined);
  });

  test("a chain at a device", () => {
    const { unprovable } = provedOf(IN_CHAIN([{ drop: null }], { hook: "ingress", dev: "eth0" }));
    assert.match(unprovable ?? "", /runs at a device/);
  });

  test("a chain of a bridge, unless it has no rules, as ebtables leaves them", () => {
    const [dump] = IN_CHAIN([{ drop: null }]);
    const text = JSON.stringify(dump).replaceAll('"inet"', '"bridge"');
    const bridge: Dump & { kind: "nftables" } = JSON.parse(text);
    assert.match(provedOf([bridge]).unprovable ?? "", /the chain in of the table bridge other runs at a bridge/);
    const { unprovable, differing } = provedOf([{ ...bridge, objects: bridge.objects.slice(0, -1) }]);
    assert.deepEqual([unprovable, differing], [undefined, 0]);
  });

  test("only packets that may meet it are not proved", () => {
    const port = match({ payload: { protocol: "tcp", field: "dport" } }, 25);
    const { classes, unproved, gaps } = provedOf(
      IN_CHAIN([match({ meta: { key: "skuid" } }, 0), port, { drop: null }]),
    );
    assert.ok(unproved > 0 && unproved < classes);
    const [gap, ...others] = gaps;
    assert.equal(others.length, 0);
    assert.deepEqual([gap?.packet.protocol, gap?.packet.destinationPort], ["tcp", 25]);
    assert.match(gap?.because ?? "", /it depends on whether meta skuid 0 .*\(inet other in/);
  });

  test("a copy of a packet does not change its way, but for connections of the machine that gets it", () => {
    const { gaps, differing } = provedOf(IN_CHAIN([{ dup: { addr: "10.0.0.1" } }]));
    assert.equal(differing, 0);
    for (const { packet } of gaps) assert.ok([packet.source, packet.destination].includes(ip("10.0.0.1")));
    assert.ok(provedOf(IN_CHAIN([{ dup: { addr: "10.0.0.1" } }, { drop: null }])).differing > 0);
  });

  test("understood ones are proved: another program's drop of one port", () => {
    const proof = provedOf(IN_CHAIN([match({ payload: { protocol: "tcp", field: "dport" } }, 25), { drop: null }]));
    assert.ok(proof.unprovable === undefined && proof.differing > 0);
  });
});

describe("packets of one class are alike", () => {
  test("the protocol of a refusal's connection is not that of the ICMP answer", () => {
    const protocol = { match: { op: "==", left: { ct: { key: "protocol" } }, right: "tcp" } };
    const chain = { hook: "output", prio: 0 };
    const rules = [...saved("filter", "-A FORWARD -j REJECT"), ...IN_CHAIN([protocol, { drop: null }], chain)];
    assert.match(provedOf(rules).unprovable ?? "", /^whether the refusal arrives depends on /);
  });

  test("an answer that chance drops: the refusal arrives as often as it passes", () => {
    const half = "-m statistic --mode random --probability 0.50000000000";
    const rules = [...saved("mangle", `-A OUTPUT -p icmp ${half} -j DROP`), ...saved("filter", "-A FORWARD -j REJECT")];
    const { unprovable, examples } = provedOf(rules);
    assert.equal(unprovable, undefined);
    const ways = examples.flatMap(({ fates: [, fate] }) => [...fate]);
    assert.ok(ways.some(([way, odds]) => way === "refused" && odds === 0.5));
    assert.ok(ways.some(([way, odds]) => way === "dropped" && odds === 0.5));
  });

  test("the connection's ends before any translation are told apart, for refusals too", () => {
    const away = "-A PREROUTING -d 10.96.0.1/32 -j DNAT --to-destination 10.0.0.7";
    const asked = (option: string, chain = "FORWARD") => [
      ...saved("nat", away),
      ...saved("filter", `-A ${chain} -m conntrack ${option} -j DROP`, "-A FORWARD -d 10.0.0.7/32 -j REJECT"),
    ];
    const dropped = (option: string, chain?: string) => {
      const rules = (more: string) => rulesSide("rules", asked(more, chain), "IPv4", OWN);
      const proof = prove("IPv4", OWN, [rules("--ctorigsrc 10.9.9.9 --ctorigdst 10.9.9.9"), rules(option)]);
      assert.equal(proof.unprovable, undefined, option);
      return new Set(proof.examples.flatMap(({ packet }) => [packet.destination, packet.source]));
    };
    assert.ok(dropped("--ctorigsrc 10.0.0.5", "OUTPUT").has(ip("10.0.0.5")));
    assert.ok(dropped("--ctorigdst 10.96.0.1").has(ip("10.96.0.1")));
    for (const chain of ["FORWARD", "OUTPUT"])
      assert.equal(dropped("--ctorigdst 10.96.0.1", chain).has(ip("10.0.0.7")), false);
    assert.ok(dropped("--ctorigdst 10.96.0.1", "OUTPUT").has(ip("10.96.0.1")));
    assert.equal(dropped("--ctdir REPLY").size, 0);
    assert.ok(dropped("--ctdir REPLY", "OUTPUT").size > 0);
    assert.ok(dropped("--ctproto 6").size > 0);
  });

  const between = (one: readonly Dump[], other: readonly Dump[]) =>
    prove("IPv4", OWN, [rulesSide("one", one, "IPv4", OWN), rulesSide("other", other, "IPv4", OWN)]).differing;
  const field = (protocol: string, name: string) => ({ payload: { protocol, field: name } });
  const equals = (left: unknown, right: unknown) => ({ match: { op: "==", left, right } });

  test("ports by which a long chain finds its rules are told apart: a rule at one is none at another", () => {
    const ports = Array.from({ length: 20 }, (_, index) => 30_000 + index);
    const chain = (protocol: string) =>
      saved(
        "filter",
        ...ports.map((port) => `-A INPUT -p tcp -m tcp --dport ${port} -j DROP`),
        `-A INPUT -p ${protocol} -m ${protocol} --dport 30020 -j DROP`,
      );
    assert.ok(between(chain("udp"), chain("sctp")) > 0);
  });

  test("an address that begins as a port does, in a long chain", () => {
    const own = [ip("fd00::2"), ip("::1")];
    const ports = Array.from({ length: 20 }, (_, index) => `-A INPUT -p tcp -m tcp --dport ${index + 1} -j DROP`);
    const side = (...rules: string[]) => rulesSide("rules", saved("filter", ...ports, ...rules), "IPv6", own);
    assert.ok(prove("IPv6", own, [side("-A INPUT -d ::1/128 -p udp -j DROP"), side()]).differing > 0);
  });

  test("ICMP, which has no ports, and other protocols", () => {
    const others = [equals({ meta: { key: "l4proto" } }, { set: ["tcp", "udp", "sctp"] }), { accept: null }];
    const port = [equals(field("th", "dport"), 53), { drop: null }];
    assert.ok(between(inChains({ in: [others, port] }), inChains({ in: [others] })) > 0);
  });

  test("a sender, and the others of a range that it is in the middle of", () => {
    const sources = equals(field("ip", "saddr"), { range: ["10.0.0.0", "10.0.0.2"] });
    const drop = [sources, equals(field("ip", "daddr"), "10.0.0.1"), { drop: null }];
    assert.ok(between(inChains({ in: [drop] }), []) > 0);
  });

  test("two fields that are looked at again when one of them is translated", () => {
    const ends = { concat: [field("ip", "daddr"), field("ip", "saddr")] };
    const barred = [equals(ends, { set: [{ concat: ["10.1.0.1", "10.0.0.5"] }] }), { drop: null }];
    const translated = [equals(field("ip", "daddr"), "10.9.0.1"), { dnat: { addr: "10.1.0.1" } }];
    const ask = [{ jump: { target: "check" } }];
    const rules = (forward: readonly unknown[][]) =>
      inChains({ in: [ask], nat: [translated], forward, check: [barred] });
    assert.ok(between(rules([ask]), rules([])) > 0);
  });

  test("a field that is looked at beside a mark, again when that is another", () => {
    const both = { concat: [{ meta: { key: "mark" } }, field("ip", "saddr")] };
    const barred = [equals(both, { set: [{ concat: [1, "10.0.0.5"] }] }), { drop: null }];
    const marked = [{ mangle: { key: { meta: { key: "mark" } }, value: 1 } }];
    const ask = [{ jump: { target: "check" } }];
    const rules = (again: readonly unknown[][]) => inChains({ in: [ask, marked, ...again], check: [barred] });
    assert.ok(between(rules([ask]), rules([])) > 0);
  });

  test("ports that are looked up for a translation: what is not found is not translated", () => {
    const lookup = (port: number) => ({ map: { key: field("tcp", "dport"), data: { set: [[port, 8080]] } } });
    const kinds: readonly ((port: unknown) => object)[] = [
      (port) => ({ redirect: { port } }),
      (port) => ({ dnat: { family: "ip", addr: "10.0.0.7", port } }),
    ];
    for (const translation of kinds) {
      const rules = (port: number) => inChains({ nat: [[translation(lookup(port))]] });
      assert.ok(between(rules(80), rules(81)) > 0);
      const { examples } = provedOf(rules(80));
      assert.deepEqual(new Set(examples.map(({ packet }) => packet.destinationPort)), new Set([80]));
    }
  });

  test("protocols that nft prints as numbers", () => {
    const end = { concat: [{ meta: { key: "l4proto" } }, field("th", "dport")] };
    const barred = (protocol: unknown, port: number) =>
      inChains({ in: [[equals(end, { set: [{ concat: [protocol, port] }] }), { drop: null }]] });
    assert.ok(between(barred(6, 80), barred(6, 81)) > 0);
    assert.equal(between(barred(6, 80), barred("tcp", 80)), 0);
  });

  test("a mark that is a field of the packet cannot be proved", () => {
    const marked = [
      equals(field("ip", "protocol"), "tcp"),
      { mangle: { key: { meta: { key: "mark" } }, value: field("tcp", "dport") } },
    ];
    const dropped = [equals({ meta: { key: "mark" } }, 25), { drop: null }];
    assert.ok(provedOf(inChains({ in: [marked], forward: [dropped] })).unprovable !== undefined);
  });

  test("a mark that passes through the connection", () => {
    const mark = { meta: { key: "mark" } };
    const rules = (value: unknown) =>
      inChains({
        in: [
          [
            { mangle: { key: { ct: { key: "mark" } }, value } },
            { mangle: { key: mark, value: { ct: { key: "mark" } } } },
          ],
        ],
        forward: [[equals(mark, 1), { drop: null }]],
      });
    assert.ok(between(rules(1), rules(2)) > 0);
    assert.equal(between(rules(2), rules({ "|": [mark, 2] })), 0);
    assert.ok(provedOf(rules(field("tcp", "dport"))).unprovable !== undefined);
  });

  test("before connection tracking there is no mark to read, and none is set", () => {
    const mark = { ct: { key: "mark" } };
    const marked = inChains({ in: [[{ mangle: { key: mark, value: 1 } }], [equals(mark, 1), { drop: null }]] });
    const before = (priority: number) =>
      marked.map((dump): Dump => {
        if (dump.kind !== "nftables") return dump;
        const text = JSON.stringify(dump.objects);
        return { ...dump, objects: JSON.parse(text.replaceAll(/"prio":-?\d+/g, `"prio":${priority}`)) };
      });
    assert.equal(between(before(-150), inChains({ in: [[{ drop: null }]] })), 0);
    // Packets that come in again by loopback have kept their connection.
    const looped = [equals({ meta: { key: "iifname" } }, "lo"), { drop: null }];
    assert.equal(between(before(-300), inChains({ in: [looped] })), 0);
  });

  test("a mark that is looked up: where there is none, the rule ends", () => {
    const lookup = (port: number) => ({ map: { key: field("tcp", "dport"), data: { set: [[port, 1]] } } });
    for (const key of [{ ct: { key: "mark" } }, { meta: { key: "mark" } }]) {
      const rules = (value: unknown) => inChains({ in: [[{ mangle: { key, value } }, { drop: null }]] });
      assert.ok(between(rules(lookup(80)), rules(1)) > 0);
      const dropped = inChains({ in: [[equals(field("tcp", "dport"), 80), { drop: null }]] });
      assert.equal(between(rules(lookup(80)), dropped), 0);
    }
    const port = [{ mangle: { key: { ct: { key: "mark" } }, value: field("tcp", "dport") } }, { drop: null }];
    const tcp = [equals({ meta: { key: "l4proto" } }, "tcp"), { drop: null }];
    assert.equal(between(inChains({ in: [port] }), inChains({ in: [tcp] })), 0);
  });

  test("a source that is changed to a certain address", () => {
    const source = (addr: string) => inChains({ out: [[{ snat: { addr } }]] });
    assert.ok(between(source("10.0.0.1"), source("10.0.0.2")) > 0);
    assert.equal(between(source("10.0.0.1"), source("10.0.0.1")), 0);
  });
});

test("a rule that keeps the port is not the one that names the port of the packet that is tried", () => {
  const to = (end: string) =>
    rulesSide(
      "rules",
      saved("nat", `-A PREROUTING -d 10.9.9.9/32 -p tcp -j DNAT --to-destination ${end}`),
      "IPv4",
      OWN,
    );
  const same = (one: string, other: string) => prove("IPv4", OWN, [to(one), to(other)]).differing === 0;
  const { examples } = prove("IPv4", OWN, [to("10.0.0.1"), to("10.0.0.1:1")]);
  const tried = examples[0]?.packet.destinationPort;
  assert.ok(tried !== undefined);
  assert.ok(!same("10.0.0.1", `10.0.0.1:${tried}`));
  assert.ok(same("10.0.0.1", "10.0.0.1"));
  assert.ok(same(`10.0.0.1:${tried}`, `10.0.0.1:${tried}`));
});

test("addresses that a program bars for a while are no clients that packets have left", () => {
  const listed = [{ elem: { val: "203.0.113.9", timeout: 3600, expires: 100 } }];
  const set = { family: "ip", table: "other", name: "barred", type: "ipv4_addr", flags: ["timeout"] };
  const saddr = { payload: { protocol: "ip", field: "saddr" } };
  const barred = [{ match: { op: "==", left: saddr, right: "@barred" } }, { drop: null }];
  const withSet = (dumps: readonly Dump[], elem: readonly object[] = listed) =>
    dumps.map((dump): Dump => {
      return dump.kind === "nftables" ? { ...dump, objects: [{ set: { ...set, elem } }, ...dump.objects] } : dump;
    });
  assert.ok(provedOf(withSet(inChains({ in: [barred] }))).differing > 0);
  // In the proxy's table, a rule that fills it makes them clients, which are remembered from an empty beginning; elsewhere they are barred.
  for (const fills of [
    { set: { op: "update", elem: saddr, set: "@barred" } },
    "update @barred { ip saddr timeout 1h }",
  ]) {
    const rules = inChains({ in: [barred, [fills]] });
    const side = (dumps: readonly Dump[], table: string) =>
      rulesSide("rules", JSON.parse(JSON.stringify(dumps).replaceAll('"other"', `"${table}"`)), "IPv4", OWN);
    for (const table of ["other", "kube-proxy"]) {
      const sides = [side(withSet(rules), table), side(withSet(rules, []), table)] as const;
      const { differing, unprovable } = prove("IPv4", OWN, sides);
      assert.deepEqual([differing > 0, unprovable], [table === "other", undefined]);
    }
  }
});

test("tables of iptables-legacy stand beside those that its nft variant has by the same names", () => {
  const chains = { nat: [[{ jump: { target: "check" } }]], check: [[{ dnat: { addr: "10.0.0.7" } }]] };
  const text = JSON.stringify(inChains(chains)).replaceAll('"other"', '"nat"');
  const nft: Dump[] = JSON.parse(text);
  assert.ok(provedOf([...saved("nat"), ...nft]).differing > 0);
  // Of the nft variant itself, both tools list the same rules.
  const same = [":nat - [0:0]", ":check - [0:0]", "-A nat -j check", "-A check -j DNAT --to-destination 10.0.0.7"];
  assert.equal(provedOf([...saved("nat", ...same), ...nft]).differing, 0);
  // iptables-save left something out.
  assert.ok(provedOf([...saved("nat", ...same.slice(0, -1)), ...nft]).differing > 0);
  const listed: Dump[] = JSON.parse(
    text.replace(
      '{"jump"',
      '{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"saddr"}},"right":{"set":["10.0.0.1"]}}},{"jump"',
    ),
  );
  assert.ok(provedOf([...saved("nat", ...same), ...listed]).differing > 0);
});

test("targets that nft prints as text like its own statements are iptables' where iptables-save has them", () => {
  const header = "# Generated by iptables-save v1.8.9 (nf_tables) on Sun Nov 29 09:57:41 2026\n";
  const rules = (target: string, statement: string) => {
    const [dump] = saved("mangle", `-A FORWARD -m realm --realm 0x5${target}`);
    const text = `${header}${dump?.kind === "iptables" ? dump.text : ""}`;
    const listing = `table ip mangle {\n\tchain FORWARD {\n\t\ttype filter hook forward priority mangle; policy accept;\n\t\trt classid 5 counter packets 0 bytes 0 ${statement}\n\t}\n}\n`;
    const { ofIptables } = judgeSaved(
      savedTables([{ kind: "iptables", family: "IPv4", text }]),
      listedObjects([recogniseDump(listing, "nft")]),
      "IPv4",
    );
    return ofIptables.has("ip mangle");
  };
  const printed = {
    "-j TEE --gateway 192.0.2.1": "dup to 192.0.2.1",
    "-j DSCP --set-dscp 0x1": "ip dscp set 0x01",
    "-m iprange --src-range 10.0.0.1-10.0.0.9 -j DROP": "ip saddr 10.0.0.1-10.0.0.9 drop",
    "-p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 500": "tcp option maxseg size set 500",
  };
  for (const [target, statement] of Object.entries(printed)) {
    assert.equal(rules(` ${target}`, statement), true, statement);
    // nft's own statement, of which iptables-save prints nothing.
    assert.equal(rules("", statement), false, statement);
  }
});

test("iptables-save of the nft back end is not trusted alone", () => {
  const header = "# Generated by iptables-save v1.8.9 (nf_tables) on Sun Nov 29 09:57:41 2026\n";
  const dumps = (text: string): Dump[] =>
    saved("filter", ":unused - [0:0]", "-A unused -j RETURN").map((dump) =>
      dump.kind === "iptables" ? { ...dump, text: `${text}${dump.text}` } : dump,
    );
  const { unprovable, differing, unproved } = provedOf(dumps(header));
  assert.deepEqual([differing, unproved], [0, 0]);
  assert.match(
    unprovable ?? "",
    /^iptables-save of the nft back end is not trusted alone \(filter\): .* nft list ruleset, too$/,
  );
  assert.equal(provedOf(dumps(header.replace(" (nf_tables)", ""))).unprovable, undefined);
  const chains = ["INPUT", "FORWARD", "OUTPUT", "PREROUTING", "POSTROUTING"].map((name) => ({
    chain: { family: "ip", table: "filter", name, type: "filter", hook: name.toLowerCase(), prio: 0, policy: "accept" },
  }));
  assert.equal(provedOf([...dumps(header), { kind: "nftables", objects: chains }]).unprovable, undefined);
  // A table without rules says nothing that could be wrong, unless the tool left out what is in it.
  const mangle = (...lines: readonly string[]) =>
    ["", ...lines, "*mangle", ":PREROUTING ACCEPT [0:0]", ":FORWARD ACCEPT [0:0]", "COMMIT", ""].join("\n");
  const doubtOf = (rest: string) =>
    provedOf([
      { kind: "iptables", family: "IPv4", text: `${header}${rest}` },
      { kind: "nftables", objects: chains },
    ]).unprovable;
  assert.equal(doubtOf(mangle()), undefined);
  for (const rest of [
    mangle("# Table `mangle' contains incompatible base-chains, use 'nft' tool to list them."),
    mangle().replace("FORWARD ACCEPT", "FORWARD DROP"),
    mangle().replace("COMMIT", "-A FORWARD -p tcp -j ACCEPT\nCOMMIT"),
  ])
    assert.match(doubtOf(rest) ?? "", / is not trusted alone \(mangle\): /, rest);
});

describe("clients that come again", () => {
  const leads = (end: string, rest = "") =>
    `-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 ${rest}-j DNAT --to-destination ${end}`;
  const half = "-m statistic --mode random --probability 0.50000000000 ";
  const known = (list: string) =>
    `-m recent --rcheck --seconds 100 --reap --name ${list} --mask 255.255.255.255 --rsource `;
  const sets = (list: string) => `-m recent --set --name ${list} --mask 255.255.255.255 --rsource `;
  const forgetful = [leads("10.0.0.1:80", half), leads("10.0.0.2:80")];
  const sticky = [
    leads("10.0.0.1:80", known("KUBE-SEP-A")),
    leads("10.0.0.2:80", known("KUBE-SEP-B")),
    leads("10.0.0.1:80", `${half}${sets("KUBE-SEP-A")}`),
    leads("10.0.0.2:80", sets("KUBE-SEP-B")),
  ];
  const between = (one: readonly string[], other: readonly string[]) =>
    prove("IPv4", OWN, [
      rulesSide("one", saved("nat", ...one), "IPv4", OWN),
      rulesSide("other", saved("nat", ...other), "IPv4", OWN),
    ]);

  test("the same first packets, and other next ones, are a difference", () => {
    assert.equal(between(sticky, sticky).differing, 0);
    assert.ok(between(sticky, forgetful).differing > 0);
  });

  test("who is remembered in the wrong list is led elsewhere the next time", () => {
    const wrong = sticky.with(2, leads("10.0.0.1:80", `${half}${sets("KUBE-SEP-B")}`));
    assert.ok(between(sticky, wrong).differing > 0);
  });

  test("odds are compared exactly, up to what iptables rounds", () => {
    const third = "-m statistic --mode random --probability 0.33333333349 ";
    const nearly = "-m statistic --mode random --probability 0.33334333349 ";
    const rounded = "-m statistic --mode random --probability 0.33333333302 ";
    assert.equal(between([leads("10.0.0.1:80", third)], [leads("10.0.0.1:80", rounded)]).differing, 0);
    assert.ok(between([leads("10.0.0.1:80", third)], [leads("10.0.0.1:80", nearly)]).differing > 0);
  });
});
