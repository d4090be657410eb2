import assert from "node:assert/strict";
import { test } from "node:test";
import { ip } from "../../model/testing/records.ts";
import { nodeFacts } from "../facts.ts";
import { programOf } from "../netfilter/calling-order.ts";
import { outcomesOf } from "../netfilter/tree.ts";
import { walk } from "../netfilter/walk.ts";
import { newPacket, type PacketQuestion } from "../packet.ts";
import { readNftRuleset } from "./ruleset.ts";

const facts = nodeFacts({ addresses: [ip("fd00::10")] });
const chain = { family: "inet", table: "firewall", name: "in", type: "filter", hook: "input", prio: 0, policy: "drop" };
const match = (left: unknown, right: unknown) => ({ match: { op: "==", left, right } });

/** The fates of an ICMPv6 packet to the node if only this rule accepts packets. */
function fatesWith(...expr: unknown[]) {
  return endsWith(expr).map(({ fate }) => fate);
}

function endsWith(expr: readonly unknown[], asked: Partial<PacketQuestion> = {}) {
  const rule = { family: "inet", table: "firewall", chain: "in", expr };
  const { chains } = readNftRuleset([{ chain }, { rule }], { family: "IPv6", facts });
  const packet = newPacket({
    ...{ family: "IPv6", protocol: "icmpv6", inInterface: "eth0" },
    ...{ source: ip("fd00::20"), sourcePort: undefined, destination: ip("fd00::10"), destinationPort: undefined },
    ...asked,
  });
  return [...outcomesOf(walk(programOf(chains), packet, facts))];
}

const pinged = (condition: unknown): string[] => fatesWith(condition, { accept: null }).map(({ kind }) => kind);

test("a host's firewall lets ICMP for IPv6 in by the name that nft prints", () => {
  const protocol = { meta: { key: "l4proto" } };
  const header = { payload: { protocol: "ip6", field: "nexthdr" } };
  assert.deepEqual(pinged(match(protocol, "ipv6-icmp")), ["delivered"]);
  assert.deepEqual(pinged(match(protocol, { set: ["icmp", "ipv6-icmp"] })), ["delivered"]);
  assert.deepEqual(pinged(match(header, "ipv6-icmp")), ["delivered"]);
  assert.deepEqual(pinged(match(protocol, { set: ["icmp", "tcp"] })), ["dropped"]);
});

test("who is refused is told so in the words of its own family", () => {
  const answer = (reject: object | null) => fatesWith({ reject }).map((fate) => "answer" in fate && fate.answer);
  assert.deepEqual(answer(null), ["icmpv6 port-unreachable"]);
  assert.deepEqual(answer({ type: "icmpv6", expr: "admin-prohibited" }), ["icmpv6 admin-prohibited"]);
});

test("a translation of the other family in a table of both passes a packet over", () => {
  const kinds = (family: string, addr: string) => fatesWith({ dnat: { family, addr } }).map(({ kind }) => kind);
  // A translation accepts the packet; the policy drops the others.
  assert.deepEqual([kinds("ip", "10.0.0.7"), kinds("ip6", "fd00::7")], [["dropped"], ["delivered"]]);
});

test("the first packet of a connection has SYN and no other flag but those of congestion", () => {
  const flags = { payload: { protocol: "tcp", field: "flags" } };
  const four = { "|": [{ "|": [{ "|": ["fin", "syn"] }, "rst"] }, "ack"] };
  const answers = (op: string, left: unknown, right: unknown, asked: Partial<PacketQuestion> = {}) =>
    endsWith([{ match: { op, left, right } }, { accept: null }], { protocol: "tcp", ...asked })
      .map(({ fate, assumptions }) => `${fate.kind}${assumptions.length > 0 ? "?" : ""}`)
      .sort();
  const masked = { "&": [flags, four] };
  assert.deepEqual(answers("==", masked, "syn"), ["delivered"]);
  assert.deepEqual(answers("!=", masked, "syn"), ["dropped"]);
  assert.deepEqual(answers("==", { "&": [flags, ["fin", "ack"]] }, 0), ["delivered"]);
  assert.deepEqual(answers("==", { "&": [flags, "fin"] }, "syn"), ["dropped"]);
  assert.deepEqual(answers("in", flags, ["syn", "ack"]), ["delivered"]);
  assert.deepEqual(answers("in", flags, ["rst", "ack"]), ["dropped"]);
  assert.deepEqual(answers("!", flags, ["rst", "ack"]), ["delivered"]);
  assert.deepEqual(answers("==", flags, "ack"), ["dropped"]);
  assert.deepEqual(
    answers("==", flags, "syn"),
    ["delivered?", "dropped?"],
    "a client may ask for notice of congestion",
  );
  assert.deepEqual(answers("in", flags, ["ecn"]), ["delivered?", "dropped?"]);
  assert.deepEqual(answers("==", masked, "syn", { protocol: "udp" }), ["dropped"]);
  assert.deepEqual(answers("==", masked, "syn", { state: "established" }), ["delivered?", "dropped?"]);
  assert.deepEqual(answers("==", masked, "syn", { state: "invalid" }), ["delivered?", "dropped?"]);
});

test("a random number below a limit is a chance, as iptables' is", () => {
  const random = { meta: { key: "random" } };
  const odds = (op: string, left: unknown, right: unknown) =>
    endsWith([{ match: { op, left, right } }, { accept: null }]).map((end) => `${end.fate.kind} ${end.odds}`);
  assert.deepEqual(odds("<", { "&": [random, 0x7fff_ffff] }, 0x2000_0000).sort(), ["delivered 0.25", "dropped 0.75"]);
  assert.deepEqual(odds(">=", { "&": [random, 0x7fff_ffff] }, 0x2000_0000).sort(), ["delivered 0.75", "dropped 0.25"]);
  assert.deepEqual(odds("<", random, 0x8000_0000).sort(), ["delivered 0.5", "dropped 0.5"]);
  const isOpen = (left: unknown) => endsWith([{ match: { op: "<", left, right: 7 } }]).length;
  assert.equal(isOpen({ "&": [random, 0x6] }), 1, "a condition alone decides nothing");
});

test("the length of a datagram is a field as others are", () => {
  const length = { payload: { protocol: "udp", field: "length" } };
  const fates = (asked: Partial<PacketQuestion>) =>
    endsWith([match(length, { range: [8, 2000] }), { accept: null }], asked)
      .map(({ fate }) => fate.kind)
      .sort();
  assert.deepEqual(fates({ protocol: "udp", udpLength: 2000 }), ["delivered"]);
  assert.deepEqual(fates({ protocol: "udp", udpLength: 2001 }), ["dropped"]);
  assert.deepEqual(fates({ protocol: "udp" }), ["delivered", "dropped"], "not known");
  assert.deepEqual(fates({ protocol: "tcp" }), ["dropped"]);
});
