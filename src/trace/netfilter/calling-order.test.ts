/** What the kernel was seen to do with chains of one hook, on Linux 6.1 to 7.3 (/proc and listings tell no more than is used here). */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ip } from "../../model/testing/records.ts";
import { nodeFacts } from "../facts.ts";
import { readNftRuleset } from "../nftables/ruleset.ts";
import { endText, newPacket } from "../packet.ts";
import { programOf } from "./calling-order.ts";
import { outcomesOf } from "./tree.ts";
import { walk } from "./walk.ts";

const facts = nodeFacts({ addresses: [ip("192.0.2.10")] });
const NEXT = { to: "10.0.0.9", port: 80 };
const dnat = (addr: string) => ({ dnat: { addr, port: 2001 } });
const toService = { match: { op: "==", left: { payload: { protocol: "ip", field: "daddr" } }, right: NEXT.to } };

/** A base chain with one rule. */
function chainOf(table: string, type: string, prio: number, expr: readonly object[], more: object = {}): object[] {
  const place = { family: "ip", table };
  const name = `${type}${prio}`;
  return [
    { chain: { ...place, name, type, hook: "prerouting", prio, policy: "accept", ...more } },
    { rule: { ...place, chain: name, expr } },
  ];
}

/** What becomes of a packet from outside; with what it depends on, if that is not known. */
function fates(...objects: readonly (readonly object[])[]): string[] {
  const { chains } = readNftRuleset(objects.flat(), { family: "IPv4", facts });
  const packet = newPacket({
    ...{ family: "IPv4", protocol: "tcp", inInterface: "eth0" },
    ...{ source: ip("198.51.100.7"), sourcePort: 40_000, destination: ip(NEXT.to), destinationPort: NEXT.port },
  });
  return [...outcomesOf(walk(programOf(chains), packet, facts))].map(({ fate, packet: end, assumptions }) => {
    const what = fate.kind === "sent" ? endText(end.destination, end.destinationPort) : fate.kind;
    return [what, ...assumptions].join(", if ");
  });
}

test("a nat chain acts at -100 or 100; its priority orders it among nat chains", () => {
  const dropService = [toService, { drop: null }];
  assert.deepEqual(fates(chainOf("a", "nat", 50, [dnat("10.0.0.1")]), chainOf("b", "filter", 0, dropService)), [
    "10.0.0.1:2001",
  ]);
  assert.deepEqual(fates(chainOf("a", "nat", -150, [dnat("10.0.0.1")]), chainOf("b", "filter", -120, dropService)), [
    "dropped",
  ]);
  // Among nat chains the declared priority counts.
  assert.deepEqual(fates(chainOf("a", "nat", 50, [dnat("10.0.0.1")]), chainOf("b", "nat", -150, [dnat("10.0.0.2")])), [
    "10.0.0.2:2001",
  ]);
});

test("of two tables with one priority, either may be first: this is asked only where it matters", () => {
  const nat = (table: string, ...expr: object[]) => chainOf(table, "nat", -100, expr);
  assert.deepEqual(fates(nat("a", dnat("10.0.0.1")), nat("b", dnat("10.0.0.2"))), [
    "10.0.0.1:2001, if ip a nat-100 is called before ip b nat-100",
    "10.0.0.2:2001, if ip b nat-100 is called before ip a nat-100",
  ]);
  assert.deepEqual(fates(nat("a", dnat("10.0.0.1")), nat("b", dnat("10.0.0.1"))), ["10.0.0.1:2001"]);
  assert.deepEqual(fates(nat("a", dnat("10.0.0.1")), nat("b", { accept: null }), nat("c", { counter: null })), [
    "10.0.0.1:2001",
  ]);
  // What is translated is not asked about again.
  assert.equal(fates(nat("a", dnat("10.0.0.1")), nat("b", { drop: null })).length, 2);
  const mark = (value: number) => ({ mangle: { key: { meta: { key: "mark" } }, value } });
  const isMarked = { match: { op: "==", left: { meta: { key: "mark" } }, right: 1 } };
  const filter = (table: string, ...expr: object[]) => chainOf(table, "filter", 0, expr);
  assert.deepEqual(fates(filter("a", mark(1)), filter("b", toService, isMarked, { drop: null })), [
    "dropped, if ip a filter0 is called before ip b filter0",
    "10.0.0.9:80, if ip b filter0 is called before ip a filter0",
  ]);
  // A filter chain at the priority at which nat acts.
  assert.equal(fates(nat("a", dnat("10.0.0.1")), chainOf("b", "filter", -100, [toService, { drop: null }])).length, 2);
});

test("in one table, the newest is called first", () => {
  const nat = (name: string, addr: string, handle?: number) => {
    const [chain, rule] = [
      { family: "ip", table: "a", name },
      { family: "ip", table: "a", chain: name },
    ];
    const head = { type: "nat", hook: "prerouting", prio: -100, policy: "accept", ...(handle && { handle }) };
    return [{ chain: { ...chain, ...head } }, { rule: { ...rule, expr: [dnat(addr)] } }];
  };
  assert.deepEqual(fates(nat("old", "10.0.0.1"), nat("new", "10.0.0.2")), ["10.0.0.2:2001"]);
  assert.deepEqual(fates(nat("new", "10.0.0.2", 7), nat("old", "10.0.0.1", 3)), ["10.0.0.2:2001"]);
});

test("a dormant table is not called; flags of an nft that prints them wrongly are not believed", () => {
  const [chain, rule] = chainOf("a", "filter", 0, [{ drop: null }]);
  const kinds = (version: string, flags: unknown) =>
    fates([
      { metainfo: { version } },
      { table: { family: "ip", name: "a", ...(flags === undefined ? {} : { flags }) } },
      ...[chain, rule].filter((one) => one !== undefined),
    ]).map((fate) => fate.replace(/, if .*/, ""));
  assert.deepEqual(kinds("1.1.3", "dormant"), ["10.0.0.9:80"]);
  assert.deepEqual(kinds("1.1.7", ["dormant", "owner"]), ["10.0.0.9:80"]);
  assert.deepEqual(kinds("1.1.7", ["owner"]), ["dropped"]);
  assert.deepEqual(kinds("1.0.6", undefined), ["dropped"]);
  for (const flags of ["Lester Gooch #5", "dormant", ["owner", "unknown"]])
    assert.deepEqual(kinds("1.0.6", flags), ["dropped", "10.0.0.9:80"]);
  // Asleep or awake, it does nothing.
  assert.equal(
    fates(
      [{ metainfo: { version: "1.0.6" } }, { table: { family: "ip", name: "a", flags: "x" } }],
      chainOf("a", "filter", 0, []),
    ).length,
    1,
  );
});

test("behind connection tracking it is too late to leave it", () => {
  const late = fates(chainOf("a", "filter", -150, [{ notrack: null }]), chainOf("b", "nat", -100, [dnat("10.0.0.1")]));
  assert.deepEqual(late, ["10.0.0.1:2001"]);
});

test("what the node sends is routed again by its mark behind chains of type route, and where nat changed its destination", () => {
  const marks = [{ mangle: { key: { meta: { key: "mark" } }, value: 7 } }];
  const routedMark = (type: string, prio: number, expr: readonly object[] = marks) => {
    const output = { hook: "output" };
    const objects = [
      ...chainOf("a", type, prio, expr, output),
      ...chainOf("b", "nat", -100, [toService, dnat("10.0.0.1")], output),
    ];
    const { chains } = readNftRuleset(objects, { family: "IPv4", facts });
    const own = { inInterface: "", source: ip("192.0.2.10"), sourcePort: 40_000 };
    const at = (destination: string) => {
      const packet = newPacket({
        ...own,
        family: "IPv4",
        protocol: "tcp",
        destination: ip(destination),
        destinationPort: 80,
      });
      return [...outcomesOf(walk(programOf(chains), packet, facts))].map((end) => end.packet.routedMark);
    };
    return [...at(NEXT.to), ...at("10.9.9.9")];
  };
  assert.deepEqual(routedMark("route", 0), [7, 7]);
  assert.deepEqual(routedMark("filter", 0), [0, 0]);
  assert.deepEqual(routedMark("filter", -150), [7, 0]);
});
