/** What rules read in the place of ports, in packets and connections that have none: seen in a kernel, and as a walk says. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { completedListing } from "../../src/kernel/nftables/completed-listing.ts";
import { isObject, listOf } from "../../src/kernel/nftables/json.ts";
import { ip } from "../../src/model/testing/records.ts";
import { programOfDumps } from "../../src/trace/dump/program.ts";
import type { Dump } from "../../src/trace/dump/recognise.ts";
import { nodeFacts } from "../../src/trace/facts.ts";
import { outcomesOf } from "../../src/trace/netfilter/tree.ts";
import { walk } from "../../src/trace/netfilter/walk.ts";
import { newPacket, type PacketQuestion } from "../../src/trace/packet.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";

/** Sends an echo request, a datagram to a closed port, and one of GRE whose protocol is 80. */
const SEND = `
import socket, struct
def sum16(b):
    s = sum(struct.unpack("!%dH" % (len(b) // 2), b))
    s = (s >> 16) + (s & 0xffff)
    return ~(s + (s >> 16)) & 0xffff
b = struct.pack("!BBHHH", 8, 0, 0, 7, 1)
b = b[:2] + struct.pack("!H", sum16(b)) + b[4:]
for kind, protocol, bytes, port in [(3, 1, b, 0), (3, 47, struct.pack("!HHI", 0, 80, 0), 0), (2, 17, b"x", 9999)]:
    socket.socket(socket.AF_INET, kind, protocol).sendto(bytes, ("127.0.0.1", port))
`;
const CONNECT = `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.3)
s.connect(("127.0.0.1", 7777))
s.send(b"x")
try: s.recv(1)
except ConnectionRefusedError: print("refused")
except TimeoutError: print("silence")
`;
const ends = { source: ip("127.0.0.1"), destination: ip("127.0.0.1"), inInterface: "", family: "IPv4" } as const;
const PACKETS: Readonly<Record<string, PacketQuestion>> = {
  // Type 8, code 0, and the checksum.
  "icmp type echo-request": { ...ends, protocol: "icmp", sourcePort: 0x0800, destinationPort: 0xf7f7 },
  "icmp type destination-unreachable": {
    ...{ ...ends, protocol: "icmp", sourcePort: 0x0303, destinationPort: undefined },
    ...{ origin: "this-node", state: "related" },
  },
  "ip protocol gre": { ...ends, protocol: "47", sourcePort: 0, destinationPort: 80 },
  "udp dport 9999": { ...ends, protocol: "udp", sourcePort: 40_000, destinationPort: 9999 },
};
const CONDITIONS = [
  ...["th sport 2048", "th sport != 2048", "th dport != 80", "th dport 80", "th sport 771", "udp dport != 80"],
  ...["ip daddr . th sport { 127.0.0.1 . 2048 }", "ip daddr . th sport != { 127.0.0.1 . 2048 }"],
  ...["ip daddr . meta l4proto . th dport { 127.0.0.1 . udp . 9999 }", "ip protocol . th dport != { udp . 9999 }"],
  ...[
    "meta l4proto udp ct original proto-dst 9999",
    "meta l4proto icmp ct original proto-dst != 80",
    "ct protocol icmp ct original proto-src 7",
    "ip protocol icmp ct original proto-dst 2048",
    "ct protocol udp ct original proto-dst 9999",
  ],
  ...["ct protocol udp udp dport != 9999", "ct protocol udp udp sport 771", "ct protocol != udp th dport 80"],
  ...[
    "ip daddr . th dport vmap { 127.0.0.1 . 9999 : continue }",
    "meta l4proto . th dport vmap { icmp . 80 : continue }",
  ],
];

inNetns(import.meta.url, { name: "thbytes" }, () => {
  execFileSync("ip", ["link", "set", "lo", "up"]);
  const nft = (input: string) => execFileSync("nft", ["-f", "-"], { input });
  for (const condition of CONDITIONS) {
    test(condition, async () => {
      const rules = Object.keys(PACKETS).map((kind, at) => `${kind} meta mark set ${at + 1}`);
      const counted = Object.keys(PACKETS).map((_, at) => `meta mark ${at + 1} counter`);
      nft(`flush ruleset
table ip t {
  chain marks { type filter hook output priority -10; ${rules.join("; ")}; }
  chain asks { type filter hook output priority 0; ${condition} meta mark set meta mark or 0x100; }
  chain counts { type filter hook output priority 10; meta mark and 0x100 == 0 return; meta mark set meta mark and 0xff; ${counted.join("; ")}; }
  chain tracks { type nat hook output priority -100; }
}\n`);
      execFileSync("python3", ["-c", SEND]);
      const counts = execFileSync("nft", ["list", "chain", "ip", "t", "counts"], { encoding: "utf8" });
      const met = [...counts.matchAll(/counter packets (\d+)/g)].map(([, count]) => Number(count) > 0);
      nft(`flush ruleset
table ip t { chain asks { type filter hook output priority 0; ${condition} drop; }; }\n`);
      const listed: unknown = JSON.parse(execFileSync("nft", ["-j", "list", "ruleset"], { encoding: "utf8" }));
      // As --kernel reads them: nft leaves out `ct protocol` before a header of that protocol.
      const { objects } = await completedListing(isObject(listed) ? listOf(listed.nftables) : [], "");
      const dump: Dump = { kind: "nftables", objects };
      const facts = nodeFacts({ addresses: [ip("127.0.0.1")] });
      const { program } = programOfDumps([dump], { family: "IPv4", facts, knowsClients: true, knowsDynamicSets: true });
      for (const [at, [kind, packet]] of Object.entries(PACKETS).entries()) {
        for (const asked of [packet, { ...packet, sourcePort: undefined, destinationPort: undefined }]) {
          const fates = [...outcomesOf(walk(program, newPacket(asked), facts))].map(({ fate }) => fate.kind);
          const isSaid = fates.includes("uncertain") || fates.includes(met[at] === true ? "dropped" : "delivered");
          assert.ok(isSaid, `${kind}: ${met[at]}, and said to be ${fates}`);
        }
      }
    });
  }
  const OF_REFUSALS = ["th dport 80", "th dport != 80", "th dport { 80, 443 }", "th dport != { 80, 443 }"];
  for (const condition of [...OF_REFUSALS, "th dport 0-65535", "th dport & 0xff >= 0", "th sport 771"]) {
    test(`a refusal's ICMP: ${condition}`, async () => {
      nft(`flush ruleset
table ip t {
  chain refuses { type filter hook input priority 0; udp dport 7777 reject; }
  chain asks { type filter hook output priority 0; ct state related ${condition} drop; }
  chain tracks { type nat hook output priority -100; }
}\n`);
      const isRefused = execFileSync("python3", ["-c", CONNECT], { encoding: "utf8" }).trim() === "refused";
      const listed: unknown = JSON.parse(execFileSync("nft", ["-j", "list", "ruleset"], { encoding: "utf8" }));
      const dump: Dump = { kind: "nftables", objects: isObject(listed) ? listOf(listed.nftables) : [] };
      const facts = nodeFacts({ addresses: [ip("127.0.0.1")] });
      const { program } = programOfDumps([dump], { family: "IPv4", facts, knowsClients: true, knowsDynamicSets: true });
      const packet = newPacket({ ...ends, protocol: "udp", sourcePort: 40_000, destinationPort: 7777 });
      const fates = [...outcomesOf(walk(program, packet, facts))].map(({ fate }) => fate.kind);
      const isOfNames = OF_REFUSALS.includes(condition);
      assert.deepEqual(fates, [!isOfNames ? "uncertain" : isRefused ? "refused" : "dropped"]);
      // The checksum is another one each time.
      assert.equal(isRefused, isOfNames && !condition.includes("!="));
    });
  }
});
