import assert from "node:assert/strict";
import { test } from "node:test";
import { ip } from "../../model/testing/records.ts";
import { nodeFacts } from "../facts.ts";
import { programOf } from "../netfilter/calling-order.ts";
import { outcomesOf } from "../netfilter/tree.ts";
import { walk } from "../netfilter/walk.ts";
import { newPacket } from "../packet.ts";
import { readNftRuleset } from "./ruleset.ts";

const facts = nodeFacts({ addresses: [ip("fd00::10")] });
const chain = { family: "inet", table: "firewall", name: "in", type: "filter", hook: "input", prio: 0, policy: "drop" };
const match = (left: unknown, right: unknown) => ({ match: { op: "==", left, right } });

/** The fates of an ICMPv6 packet to the node if only this rule accepts packets. */
function fatesWith(...expr: unknown[]) {
  const rule = { family: "inet", table: "firewall", chain: "in", expr };
  const { chains } = readNftRuleset([{ chain }, { rule }], { family: "IPv6", facts });
  const packet = newPacket({
    ...{ family: "IPv6", protocol: "icmpv6", inInterface: "eth0" },
    ...{ source: ip("fd00::20"), sourcePort: undefined, destination: ip("fd00::10"), destinationPort: undefined },
  });
  return [...outcomesOf(walk(programOf(chains), packet, facts))].map(({ fate }) => fate);
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
