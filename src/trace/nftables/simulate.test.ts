import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { NftRule, NftStatement } from "../../kernel/nftables/ruleset.ts";
import type { NftTable } from "../../kernel/nftables/ruleset-table.ts";
import { ip } from "../../model/testing/records.ts";
import type { Cidr } from "../../net/ip.ts";
import { jhash, slotOf } from "../../net/jhash.ts";
import { nodeFacts } from "../facts.ts";
import type { Fate, Outcome } from "../netfilter/tree.ts";
import { endText, type PacketQuestion } from "../packet.ts";
import { simulateTable } from "../testing/simulate.ts";

const NODE = "192.0.2.10";
const facts = nodeFacts({ addresses: [ip(NODE)] });
const rule = (...statements: NftStatement[]): NftRule => ({ statements });
const jump = (chain: string): NftStatement => ({ kind: "verdict", verdict: { kind: "jump", chain } });
const goto = (chain: string) => ({ kind: "goto", chain }) as const;

const TABLE: NftTable = {
  family: "ip",
  name: "t",
  comment: "",
  counters: [],
  sets: [
    {
      set: { name: "frontends", key: ["address", "protocol", "port"], isMap: true },
      elements: [
        { key: ["10.96.0.1", "tcp", 80].map(value), verdict: goto("web"), comment: "shop/web:http" },
        { key: ["10.96.0.2", "tcp", 80].map(value), verdict: goto("sticky") },
      ],
    },
    {
      set: { name: "refused", key: ["address", "protocol", "port"], isMap: true },
      elements: [{ key: ["10.96.0.3", "tcp", 80].map(value), verdict: goto("reject-it") }],
    },
    {
      set: { name: "hairpin", key: ["address", "address", "protocol", "port"], isMap: false },
      elements: [{ key: ["10.0.0.1", "10.0.0.1", "tcp", 8080].map(value) }],
    },
    { set: { name: "seen-1", key: ["address"], isMap: false, timeoutSeconds: 60 }, elements: [] },
  ],
  chains: [
    {
      name: "before",
      hook: { type: "nat", hook: "prerouting", priority: -100 },
      rules: [
        rule({ kind: "address", side: "saddr", negate: true, cidrs: ["10.0.0.0/8" as Cidr] }, MARK()),
        rule(VMAP()),
      ],
    },
    {
      name: "from-node",
      hook: { type: "nat", hook: "output", priority: -100 },
      rules: [rule(VMAP())],
    },
    {
      name: "filter",
      hook: { type: "filter", hook: "forward", priority: 0 },
      rules: [rule({ kind: "ct-new" }, { kind: "vmap", fields: ["daddr", "l4proto", "dport"], map: "refused" })],
    },
    {
      name: "after",
      hook: { type: "nat", hook: "postrouting", priority: 100 },
      rules: [
        rule({ kind: "mark-test", mask: 0x4000 }, { kind: "mark-set", operation: "xor", value: 0x4000 }, MASQUERADE()),
        rule(
          { kind: "ct-dnat" },
          { kind: "lookup", fields: ["saddr", "daddr", "l4proto", "dport"], set: "hairpin" },
          MASQUERADE(),
        ),
      ],
    },
    {
      name: "web",
      rules: [
        rule(
          { kind: "l4proto", protocol: "tcp" },
          { kind: "random-dnat", targets: [target("10.0.0.1"), target("10.0.0.2"), target("10.0.0.3")] },
        ),
      ],
    },
    {
      name: "sticky",
      rules: [
        rule({ kind: "lookup", fields: ["saddr"], set: "seen-1" }, { kind: "verdict", verdict: goto("ep-1") }),
        rule({ kind: "random-vmap", verdicts: [goto("ep-1"), goto("ep-2")] }),
      ],
    },
    {
      name: "ep-1",
      rules: [
        rule({ kind: "update", set: "seen-1", field: "saddr" }),
        rule(jump("log")),
        rule({ kind: "dnat", to: target("10.0.1.1") }),
      ],
    },
    { name: "ep-2", rules: [rule({ kind: "dnat", to: target("10.0.1.2") })] },
    { name: "log", rules: [] },
    { name: "reject-it", rules: [rule({ kind: "reject" })] },
  ],
};

function value(part: string | number) {
  return typeof part === "number" || part === "tcp" ? (part as "tcp") : ip(part);
}

function target(address: string) {
  return { ip: ip(address), port: 8080 };
}

function MARK(): NftStatement {
  return { kind: "mark-set", operation: "or", value: 0x4000 };
}

function VMAP(): NftStatement {
  return { kind: "vmap", fields: ["daddr", "l4proto", "dport"], map: "frontends" };
}

function MASQUERADE(): NftStatement {
  return { kind: "masquerade" };
}

function packet(source: string, destination: string, rest: Partial<PacketQuestion> = {}): PacketQuestion {
  return {
    family: "IPv4",
    protocol: "tcp",
    source: ip(source),
    sourcePort: 50_000,
    destination: ip(destination),
    destinationPort: 80,
    inInterface: "eth0",
    ...rest,
  };
}

function summary({ odds, fate, packet: end }: Outcome): string {
  const to =
    fate.kind === "sent" || fate.kind === "delivered" ? ` ${endText(end.destination, end.destinationPort)}` : "";
  return `${odds.toFixed(3)} ${fate.kind}${to}${end.isMasqueraded ? " masqueraded" : ""}`;
}

const outcomes = (question: PacketQuestion) => simulateTable(TABLE, facts).outcomes(question);
const summaries = (question: PacketQuestion) => outcomes(question).map(summary);

describe("an nftables table, walked", () => {
  test("a random choice has one way for each target, with its odds", () => {
    assert.deepEqual(summaries(packet("10.0.0.9", "10.96.0.1")), [
      "0.333 sent 10.0.0.1:8080",
      "0.333 sent 10.0.0.2:8080",
      "0.333 sent 10.0.0.3:8080",
    ]);
  });

  test("a mark that was set before leads to masquerading, and is taken away there", () => {
    const found = outcomes(packet("198.51.100.7", "10.96.0.1"));
    assert.deepEqual(found.map(summary), [
      "0.333 sent 10.0.0.1:8080 masqueraded",
      "0.333 sent 10.0.0.2:8080 masqueraded",
      "0.333 sent 10.0.0.3:8080 masqueraded",
    ]);
    assert.deepEqual(new Set(found.map(({ packet: { mark } }) => mark)), new Set([0]));
  });

  test("an endpoint that asks for its own service is masqueraded where it is chosen itself", () => {
    assert.deepEqual(summaries(packet("10.0.0.1", "10.96.0.1")), [
      "0.333 sent 10.0.0.1:8080 masqueraded",
      "0.333 sent 10.0.0.2:8080",
      "0.333 sent 10.0.0.3:8080",
    ]);
  });

  test("what is in no map goes its way untouched, also of another protocol and without ports", () => {
    assert.deepEqual(summaries(packet("10.0.0.9", "10.96.0.1", { destinationPort: 81 })), ["1.000 sent 10.96.0.1:81"]);
    assert.deepEqual(summaries(packet("10.0.0.9", "10.96.0.1", { protocol: "udp" })), ["1.000 sent 10.96.0.1:80"]);
    assert.deepEqual(summaries(packet("10.0.0.9", NODE)), [`1.000 delivered ${NODE}:80`]);
  });

  test("a refusal names the rule", () => {
    const [only] = outcomes(packet("10.0.0.9", "10.96.0.3"));
    const expected: Fate = { kind: "refused", answer: "icmp port-unreachable", by: "ip t reject-it rule 1: reject" };
    assert.deepEqual(only?.fate, expected);
  });

  test("nat chains are for the first packet of a connection", () => {
    assert.deepEqual(summaries(packet("10.0.0.9", "10.96.0.1", { state: "established" })), ["1.000 sent 10.96.0.1:80"]);
  });

  test("packets of the node itself begin at output", () => {
    assert.deepEqual(summaries(packet(NODE, "10.96.0.1", { inInterface: "" })), [
      "0.333 sent 10.0.0.1:8080",
      "0.333 sent 10.0.0.2:8080",
      "0.333 sent 10.0.0.3:8080",
    ]);
  });

  test("what a packet leaves in a set is there for the next one", () => {
    const simulation = simulateTable(TABLE, facts);
    const first = simulation.outcomes(packet("10.0.0.9", "10.96.0.2"));
    assert.deepEqual(first.map(summary), ["0.500 sent 10.0.1.1:8080", "0.500 sent 10.0.1.2:8080"]);
    assert.deepEqual(first[0]?.entries, [{ table: "ip t", set: "seen-1", key: "10.0.0.9" }]);
    for (const entry of first[0]?.entries ?? []) simulation.remember(entry);
    assert.deepEqual(simulation.outcomes(packet("10.0.0.9", "10.96.0.2")).map(summary), ["1.000 sent 10.0.1.1:8080"]);
  });

  test("where the node's addresses are not all known, both ways are shown", () => {
    const simulation = simulateTable(TABLE, nodeFacts({ addresses: [ip(NODE)], isComplete: false }));
    const found = simulation.outcomes(packet("10.0.0.9", "10.96.9.9"));
    assert.deepEqual(
      found.map(({ assumptions, fate }) => [...assumptions, fate.kind]),
      [
        ["10.96.9.9 is an address of the node", "delivered"],
        ["10.96.9.9 is no address of the node", "sent"],
      ],
    );
  });

  test("with a random source one way is taken", () => {
    const trace = simulateTable(TABLE, facts).trace(packet("10.0.0.9", "10.96.0.1"), { random: () => 0.5 });
    assert.equal(trace.end.kind, "end");
    assert.equal(trace.end.kind === "end" && trace.end.packet.destination, "10.0.0.2");
    const said = trace.events.flatMap((event) => (event.kind === "match" ? [event.said] : []));
    assert.deepEqual(said, ["goto web (shop/web:http)", "dnat to 10.0.0.2:8080"]);
  });

  test("rules that do not match say what the packet has instead", () => {
    const trace = simulateTable(TABLE, facts).trace(packet("10.0.0.9", "10.96.9.9"), { record: "all" });
    const missed = trace.events.flatMap((event) =>
      event.kind === "no-match" ? [`${event.condition}: ${event.observed}`] : [],
    );
    assert.deepEqual(missed, [
      "ip saddr != 10.0.0.0/8: ip saddr is 10.0.0.9",
      "ip daddr . meta l4proto . th dport vmap @frontends: the map has no 10.96.9.9 . tcp . 80",
      "ip daddr . meta l4proto . th dport vmap @refused: the map has no 10.96.9.9 . tcp . 80",
      "meta mark & 0x00004000 != 0x00000000: meta mark & 0x00004000 is 0",
      "ct status dnat: ct status is none of these",
    ]);
  });
});

/** A ruleset in which Services have only set elements (reference flat-nftables.md). */
const FLAT: NftTable = {
  family: "ip",
  name: "flat",
  comment: "",
  counters: [],
  sets: [
    {
      set: { name: "services", key: ["address", "protocol", "port"], isMap: false },
      elements: [{ key: ["10.96.0.1", "tcp", 80].map(value), comment: "shop/web:http" }],
    },
    {
      set: { name: "ep-2", key: ["address", "protocol", "port", "slot"], isMap: false, hasTargets: true, slots: 2 },
      elements: [0, 1].map((slot) => {
        return { key: [...["10.96.0.1", "tcp", 80].map(value), slot], target: target(`10.0.0.${slot + 1}`) };
      }),
    },
    {
      set: { name: "ep-3", key: ["address", "protocol", "port", "slot"], isMap: false, hasTargets: true, slots: 3 },
      elements: [],
    },
    {
      set: {
        name: "seen",
        key: ["address", "address", "protocol", "port"],
        isMap: false,
        hasTargets: true,
        timeoutSeconds: 60,
      },
      elements: [],
    },
  ],
  chains: [
    {
      name: "nat-prerouting",
      hook: { type: "nat", hook: "prerouting", priority: -100 },
      rules: [rule({ kind: "lookup", fields: ["daddr", "l4proto", "dport"], set: "services" }, jump("pick"))],
    },
    {
      name: "pick",
      rules: [
        rule({ kind: "map-dnat", fields: ["saddr", "daddr", "l4proto", "dport"], map: "seen" }),
        rule({ kind: "map-dnat", fields: ["daddr", "l4proto", "dport"], slots: 3, map: "ep-3" }),
        rule({ kind: "map-dnat", fields: ["daddr", "l4proto", "dport"], slots: 2, map: "ep-2" }),
      ],
    },
    {
      name: "after",
      hook: { type: "filter", hook: "postrouting", priority: 0 },
      rules: [
        rule(
          { kind: "ct-dnat" },
          {
            kind: "update-map",
            map: "seen",
            key: ["saddr", "original-daddr", "l4proto", "original-dport"],
            target: ["reply-saddr", "reply-sport"],
          },
        ),
      ],
    },
  ],
};

describe("a flat ruleset", () => {
  test("slots that are not there are no way, and the endpoint is remembered for the client", () => {
    const simulation = simulateTable(FLAT, facts);
    const found = simulation.outcomes(packet("10.0.0.9", "10.96.0.1"));
    assert.deepEqual(found.map(summary), ["0.500 sent 10.0.0.1:8080", "0.500 sent 10.0.0.2:8080"]);
    assert.deepEqual(found[1]?.entries, [
      { table: "ip flat", set: "seen", key: "10.0.0.9 . 10.96.0.1 . tcp . 80", data: ["10.0.0.2", 8080] },
    ]);
    for (const entry of found[1]?.entries ?? []) simulation.remember(entry);
    assert.deepEqual(simulation.outcomes(packet("10.0.0.9", "10.96.0.1")).map(summary), ["1.000 sent 10.0.0.2:8080"]);
    assert.equal(simulation.outcomes(packet("10.0.0.8", "10.96.0.1")).length, 2);
  });

  test("a source is looked up by its first bits", () => {
    const allowed = { name: "allowed-9", key: ["address", "address"], isMap: false } as const;
    const drop: NftStatement = { kind: "verdict", verdict: { kind: "drop" } };
    const back: NftStatement = { kind: "verdict", verdict: { kind: "return" } };
    const simulation = simulateTable(
      {
        ...FLAT,
        sets: [{ set: allowed, elements: [{ key: ["10.96.0.1", "10.128.0.0"].map(value) }] }],
        chains: [
          {
            name: "check",
            hook: { type: "filter", hook: "prerouting", priority: -110 },
            rules: [rule(jump("sources"))],
          },
          {
            name: "sources",
            rules: [rule({ kind: "lookup", fields: ["daddr", "saddr/9"], set: allowed.name }, back), rule(drop)],
          },
        ],
      },
      facts,
    );
    const fate = (source: string) => simulation.outcomes(packet(source, "10.96.0.1"))[0]?.fate.kind;
    assert.deepEqual(["10.128.0.0", "10.255.255.255"].map(fate), ["sent", "sent"]);
    assert.deepEqual(["10.127.255.255", "11.0.0.0"].map(fate), ["dropped", "dropped"]);
  });

  describe("with a slot that a hash of the client names", () => {
    const SLOTS = 8;
    const seeds = [7, 8, 9];
    const hashed = (fields: readonly ["saddr"] | readonly ["saddr", "sport"]): NftTable => ({
      ...FLAT,
      sets: FLAT.sets.map((one) => (one.set.name === "ep-2" ? { ...one, set: { ...one.set, slots: SLOTS } } : one)),
      chains: FLAT.chains.map((chain) =>
        chain.name === "pick"
          ? {
              name: "pick",
              rules: seeds.map((seed) =>
                rule({
                  kind: "map-dnat",
                  fields: ["daddr", "l4proto", "dport"],
                  slots: SLOTS,
                  hash: { fields, seed },
                  map: "ep-2",
                }),
              ),
            }
          : chain,
      ),
    });
    /** The endpoints are in slots 0 and 1. */
    const expected = (bytes: readonly number[]): string => {
      const slots = seeds.map((seed) => slotOf(jhash(Uint8Array.from(bytes), seed), SLOTS));
      const found = slots.find((slot) => slot < 2);
      return found === undefined ? "1.000 sent 10.96.0.1:80" : `1.000 sent 10.0.0.${found + 1}:8080`;
    };

    test("the client's address says which", () => {
      const simulation = simulateTable(hashed(["saddr"]), facts);
      const seen = new Set<string>();
      for (let last = 1; last < 60; last += 1) {
        const [end, ...others] = simulation.outcomes(packet(`10.0.3.${last}`, "10.96.0.1")).map(summary);
        assert.deepEqual([end, ...others], [expected([10, 0, 3, last])]);
        seen.add(end ?? "");
      }
      assert.equal(seen.size, 3);
    });

    test("without the port that is hashed, too, every way is shown with its share", () => {
      const simulation = simulateTable(hashed(["saddr", "sport"]), facts);
      const asked = packet("10.0.3.1", "10.96.0.1");
      for (let port = 1000; port < 1020; port += 1) {
        const bytes = [10, 0, 3, 1, port >> 8, port & 0xff, 0, 0];
        assert.deepEqual(simulation.outcomes({ ...asked, sourcePort: port }).map(summary), [expected(bytes)]);
      }
      const shares = new Map<string, number>();
      for (const {
        odds,
        packet: { destination },
      } of simulation.outcomes({ ...asked, sourcePort: undefined }))
        shares.set(destination, (shares.get(destination) ?? 0) + odds);
      const missed = (6 / 8) ** 3;
      for (const address of ["10.0.0.1", "10.0.0.2"])
        assert.ok(Math.abs((shares.get(address) ?? 0) - (1 - missed) / 2) < 1e-9, address);
      assert.ok(Math.abs((shares.get("10.96.0.1") ?? 0) - missed) < 1e-9);
    });
  });
});
