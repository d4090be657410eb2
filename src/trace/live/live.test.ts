/** Assembles trace messages into packets and compares their paths, without a kernel. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { TracedHeaders, TraceEvent } from "../../kernel/nftables/tracing/trace-event.ts";
import { TRACE_TABLE } from "../../kernel/nftables/tracing/trace-table.ts";
import { ip } from "../../model/testing/records.ts";
import { nodeFacts } from "../facts.ts";
import { programOf } from "../netfilter/calling-order.ts";
import { outcomesOf } from "../netfilter/tree.ts";
import { walk } from "../netfilter/walk.ts";
import { readNftRuleset } from "../nftables/ruleset.ts";
import { newPacket, ofKnownConnection } from "../packet.ts";
import { liveText } from "../report/live-text.ts";
import { judge } from "./judge.ts";
import { type ObservedPacket, PacketAssembler } from "./observed.ts";

function headers(destination: number, inInterface?: number, outInterface?: number): TracedHeaders {
  const network = new Uint8Array(20);
  network.set([0x45, ...new Uint8Array(11), 10, 0, 0, 7, 10, 0, 0, destination]);
  return { network, transport: Uint8Array.of(4, 0, 0, 80, ...new Uint8Array(9), 2), inInterface, outInterface };
}

function event(table: string, chain: string, more: Partial<TraceEvent>): TraceEvent {
  const none = { handle: undefined, headers: undefined, connection: undefined };
  return { id: 1, family: 2, table, chain, kind: "rule", mark: 0, verdict: { code: -1 }, ...none, ...more };
}

const own = (chain: string, more: Partial<TraceEvent>): TraceEvent =>
  event(TRACE_TABLE, chain, { kind: "policy", verdict: { code: 1 }, ...more });
const began = (id: number): TraceEvent => own("prerouting", { id, kind: "rule", headers: headers(9, 2) });

function assembled(...events: readonly TraceEvent[]): ObservedPacket[] {
  const packets: ObservedPacket[] = [];
  const assembler = new PacketAssembler((packet) => packets.push(packet));
  for (const one of events) assembler.add(one, 0);
  assembler.giveUp(100);
  assert.deepEqual(
    packets.filter(({ end }) => end === "vanished"),
    [],
  );
  assembler.giveUp(10_000);
  assert.equal(assembler.openPackets, 0);
  return packets;
}

test("packets that come mixed are told apart; those of others are left out", () => {
  const packets = assembled(
    event("foreign", "x", { id: 3, headers: headers(1) }),
    began(1),
    began(2),
    own("postrouting", { id: 2, headers: headers(9, undefined, 2) }),
    event("t", "c", { id: 1, headers: headers(9, 2), verdict: { code: 0 } }),
    began(4),
  );
  assert.deepEqual(
    packets.map(({ end, visits }) => [end, visits.length]),
    [
      ["sent", 2],
      ["dropped", 2],
      ["vanished", 1],
    ],
  );
});

test("what the node sends to itself is one packet, though the kernel numbers it twice", () => {
  const packets = assembled(
    own("output", { kind: "rule", headers: headers(9, undefined, 1) }),
    own("postrouting", { headers: headers(8, undefined, 1) }),
    own("prerouting", { id: 5, headers: headers(7, 1) }),
    own("prerouting", { id: 2, headers: headers(8, 1) }),
    own("input", { id: 2, headers: headers(8, 1) }),
  );
  assert.deepEqual(
    packets.map(({ end, visits }) => [end, visits.map(({ chain }) => chain)]),
    [["delivered", ["output", "postrouting", "prerouting", "input"]]],
  );
});

const RULES = [
  { table: { family: "ip", name: "t" } },
  { chain: { family: "ip", table: "t", name: "first", type: "filter", hook: "prerouting", prio: 0, policy: "accept" } },
  {
    chain: { family: "ip", table: "t", name: "second", type: "filter", hook: "prerouting", prio: 0, policy: "accept" },
  },
  { rule: { family: "ip", table: "t", chain: "first", expr: [{ accept: null }] } },
  { rule: { family: "ip", table: "t", chain: "second", comment: "\u001b[31m", expr: [{ drop: null }] } },
];

function reportOf(...events: readonly TraceEvent[]): string {
  const facts = nodeFacts({ addresses: [] });
  const program = programOf(readNftRuleset(RULES, { family: "IPv4", facts }).chains);
  const [packet] = assembled(began(1), ...events);
  assert.ok(packet !== undefined);
  const stages = {
    prerouting: "prerouting",
    postrouting: "postrouting",
    first: "prerouting",
    second: "prerouting",
  } as const;
  const places = {
    hookOf: (_family: number, _table: string, chain: string) => {
      const stage = Object.entries(stages).find(([name]) => name === chain)?.[1];
      return stage === undefined ? undefined : { stage, priority: 0 };
    },
    indexOf: (_family: number, _table: string, _chain: string, handle: number) => (handle === 1 ? 0 : undefined),
    interfaceName: (index: number) => (index === 2 ? "eth0" : undefined),
  };
  const judged = judge(packet, { family: "IPv4", protocol: "tcp" }, { program, facts, places });
  assert.ok(judged !== undefined);
  return liveText({ ...judged, rules: "a test", notes: [] });
}

test("chains of one priority may be called in any order, and names reach no terminal unescaped", () => {
  const dropped = event("t", "second", { handle: 1, headers: headers(9, 2), verdict: { code: 0 } });
  const accepted = event("t", "first", { handle: 1, headers: headers(9, 2), verdict: { code: 1 } });
  for (const events of [[dropped], [accepted, dropped]]) {
    const text = reportOf(...events);
    assert.match(text, /What became of it: dropped by ip t second rule 1: drop/);
    assert.match(text, /The simulation says the same\./);
    assert.match(text, /^ {4}✓ second 1: drop/m);
    assert.ok(!text.includes("\u001b"));
  }
});

test("a difference is pointed out, on both sides", () => {
  const text = reportOf(
    event("t", "second", { handle: 77, headers: headers(9, 2), verdict: { code: 1 } }),
    own("postrouting", { headers: headers(9, undefined, 2) }),
  );
  assert.match(text, /^\+ {5}✓ second: a rule that is not known \(handle 77\)$/m);
  assert.match(text, /^- {5}✓ second 1: drop/m);
  assert.match(text, /What became of it: sent to 10\.0\.0\.9:80, from 10\.0\.0\.7 \(kept\), by eth0/);
  assert.match(text, /The simulation differs: dropped by ip t second rule 1/);
});

test("rules behind nat see a later packet of a connection with its new destination", () => {
  const to = (right: string, ...more: readonly object[]) => [
    { match: { op: "==", left: { payload: { protocol: "ip", field: "daddr" } }, right } },
    ...more,
  ];
  const base = { family: "ip", table: "t", hook: "output", policy: "accept" };
  const rules = [
    { table: { family: "ip", name: "t" } },
    { chain: { ...base, name: "before", type: "filter", prio: -110 } },
    { chain: { ...base, name: "nat", type: "nat", prio: -100 } },
    { chain: { ...base, name: "behind", type: "filter", prio: 0 } },
    { rule: { family: "ip", table: "t", chain: "before", expr: to("10.0.0.1", { drop: null }) } },
    { rule: { family: "ip", table: "t", chain: "behind", expr: to("10.0.0.9", { drop: null }) } },
  ];
  const facts = nodeFacts({ addresses: [] });
  const ends = { source: ip("10.0.0.7"), sourcePort: 1024, destination: ip("10.0.0.9"), destinationPort: 80 };
  const translated = { ...ends, destination: ip("10.0.0.1"), destinationPort: 8080 };
  const later = ofKnownConnection(newPacket({ family: "IPv4", protocol: "udp", inInterface: "", ...ends }), translated);
  const root = walk(programOf(readNftRuleset(rules, { family: "IPv4", facts }).chains), later, facts);
  assert.deepEqual(
    [...outcomesOf(root)].map(({ fate, packet }) => [fate.kind, packet.destination, packet.destinationPort]),
    [["sent", "10.0.0.1", 8080]],
  );
});
