/** IP sets and virtual servers of dumps, as packets meet them. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ip } from "../../model/testing/records.ts";

import { type NodeFacts, nodeFacts } from "../../trace/facts.ts";
import { readIpSets } from "../../trace/iptables/saved-sets.ts";
import { RememberedLists } from "../../trace/iptables/surroundings.ts";
import { programOf } from "../../trace/netfilter/calling-order.ts";
import { outcomesOf } from "../../trace/netfilter/tree.ts";
import { walk } from "../../trace/netfilter/walk.ts";
import { endText, newPacket, type Packet } from "../../trace/packet.ts";
import { virtualServerDump } from "./walk-virtual-servers.ts";

function packet(source: string, destination: string, port: number | undefined, protocol = "tcp"): Packet {
  const ends = { source: ip(source), sourcePort: 40_000, destination: ip(destination), destinationPort: port };
  return newPacket({ family: destination.includes(":") ? "IPv6" : "IPv4", protocol, inInterface: "eth0", ...ends });
}

const SETS = readIpSets([
  [
    "create C hash:ip,port family inet hashsize 1024 maxelem 65536",
    "add C 10.96.0.1,tcp:80",
    "create N bitmap:port range 0-65535",
    "add N 30080",
    "add N 31000-31010",
    "create R hash:ip,port,net family inet hashsize 1024 maxelem 65536",
    "add R 10.96.0.1,tcp:80,192.168.0.0/16",
    "create X hash:net family inet",
    "add X 10.0.0.0/8",
    "add X 10.1.0.0/16 nomatch",
    "create M hash:mac",
    "add M 01:02:03:04:05:06",
  ].join("\n"),
]);

describe("IP sets", () => {
  const toService = packet("192.168.3.4", "10.96.0.1", 80);

  test("an entry is compared with the sides of the packet that the match names", () => {
    assert.equal(SETS.has("C", ["dst", "dst"], toService), true);
    assert.equal(SETS.has("C", ["src", "dst"], toService), false);
    assert.equal(SETS.has("C", ["dst", "dst"], packet("192.168.3.4", "10.96.0.1", 80, "udp")), false);
  });

  test("bitmaps have ports alone, and ranges of them", () => {
    assert.equal(SETS.has("N", ["dst"], packet("192.168.3.4", "10.96.0.1", 30080, "udp")), true);
    assert.equal(SETS.has("N", ["dst"], packet("192.168.3.4", "10.96.0.1", 31005)), true);
    assert.equal(SETS.has("N", ["dst"], packet("192.168.3.4", "10.96.0.1", 31011)), false);
  });

  test("bitmaps know ports of TCP and UDP only", () => {
    assert.equal(SETS.has("N", ["dst"], packet("192.168.3.4", "10.96.0.1", 30080, "sctp")), false);
  });

  test("networks are matched as such, and a set of the other family never", () => {
    assert.equal(SETS.has("R", ["dst", "dst", "src"], toService), true);
    assert.equal(SETS.has("R", ["dst", "dst", "src"], packet("172.16.0.1", "10.96.0.1", 80)), false);
    assert.equal(SETS.has("C", ["dst", "dst"], packet("fd00::1", "fd00::2", 80)), false);
  });

  test("what is not known or not understood is no answer", () => {
    assert.equal(SETS.has("C", ["dst", "dst"], packet("192.168.3.4", "10.96.0.1", undefined)), undefined);
    assert.equal(SETS.has("X", ["src"], packet("172.16.0.1", "10.96.0.1", 80)), undefined);
    assert.equal(SETS.has("M", ["src"], toService), undefined);
    assert.equal(SETS.has("missing", ["src"], toService), undefined);
  });
});

const SAVED = [
  "-A -t 10.96.0.1:80 -s rr",
  "-a -t 10.96.0.1:80 -r 10.0.0.1:8080 -m -w 1",
  "-a -t 10.96.0.1:80 -r 10.0.0.2:8080 -m -w 0",
  "-a -t 10.96.0.1:80 -r 192.0.2.10:8080 -m -w 1",
  "-A -t 10.96.0.2:80 -s wrr",
  "-a -t 10.96.0.2:80 -r 10.0.0.1:8080 -m -w 3",
  "-a -t 10.96.0.2:80 -r 10.0.0.2:8080 -m -w 1",
  "-A -t 10.96.0.3:80 -s rr",
  "-A -u 10.96.0.4:53 -s rr -p 10800",
  "-a -u 10.96.0.4:53 -r 10.0.0.1:53 -m -w 1",
  "-A -t 10.96.0.5:80 -s rr -p 10800",
  "-a -t 10.96.0.5:80 -r 10.0.0.1:8080 -m -w 1",
  "-a -t 10.96.0.5:80 -r 10.0.0.2:8080 -m -w 1",
  "-A -t 10.96.0.6:80 -s rr",
  "-a -t 10.96.0.6:80 -r 10.0.0.1:80 -g -w 1",
].join("\n");

function chainsOf(facts: NodeFacts, clients: RememberedLists | undefined) {
  const dump = virtualServerDump(SAVED);
  return dump.kind === "chains" ? dump.chains(facts, clients) : [];
}

function fates(asked: Packet, knowsClients = true): string[] {
  const virtual = [1, 2, 3, 4, 5, 6].map((n) => ip(`10.96.0.${n}`));
  const facts = nodeFacts({ addresses: [ip("192.0.2.10"), ...virtual] });
  const root = walk(programOf(chainsOf(facts, knowsClients ? new RememberedLists() : undefined)), asked, facts, {
    record: "ends",
  });
  return Array.from(outcomesOf(root), ({ odds, fate, packet: end }) => {
    return `${odds} ${fate.kind} ${endText(end.destination, end.destinationPort)}`;
  });
}

describe("virtual servers", () => {
  test("share out packets among real servers with a weight; those of the node itself are reached at once", () => {
    const expected = ["0.5 sent 10.0.0.1:8080", "0.5 delivered 192.0.2.10:8080"];
    assert.deepEqual(fates(packet("10.9.0.1", "10.96.0.1", 80)), expected);
  });

  test("weigh where the scheduler does", () => {
    const expected = ["0.75 sent 10.0.0.1:8080", "0.25 sent 10.0.0.2:8080"];
    assert.deepEqual(fates(packet("10.9.0.1", "10.96.0.2", 80)), expected);
  });

  test("refuse without real servers, and leave other ports alone", () => {
    assert.deepEqual(fates(packet("10.9.0.1", "10.96.0.3", 80)), ["1 refused 10.96.0.3:80"]);
    assert.deepEqual(fates(packet("10.9.0.1", "10.96.0.1", 81)), ["1 delivered 10.96.0.1:81"]);
  });

  test("with persistence, a client comes back to its real server", () => {
    const asked = packet("10.9.0.1", "10.96.0.5", 80);
    const facts = nodeFacts({ addresses: [ip("10.96.0.5")] });
    const clients = new RememberedLists();
    const program = programOf(chainsOf(facts, clients));
    const ends = () =>
      Array.from(outcomesOf(walk(program, asked, facts, { record: "ends" })), ({ odds, packet: end, entries }) => ({
        text: `${odds} ${endText(end.destination, end.destinationPort)}`,
        entries,
      }));
    const [, second] = ends();
    assert.equal(second?.text, "0.5 10.0.0.2:8080");
    for (const entry of second?.entries ?? []) clients.remember(entry);
    assert.deepEqual(
      ends().map(({ text }) => text),
      ["1 10.0.0.2:8080"],
    );
  });

  test("what is not translated is not followed", () => {
    assert.deepEqual(fates(packet("10.9.0.1", "10.96.0.6", 80)), ["1 uncertain 10.96.0.6:80"]);
  });

  test("with persistence, a client that may have been here before has two ways", () => {
    const asked = packet("10.9.0.1", "10.96.0.4", 53, "udp");
    assert.deepEqual(fates(asked), ["1 sent 10.0.0.1:53"]);
    assert.deepEqual(fates(asked, false), ["1 uncertain 10.96.0.4:53", "1 sent 10.0.0.1:53"]);
  });
});
