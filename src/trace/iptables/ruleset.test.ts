import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { clientHash, hashProgramText } from "../../kernel/iptables/hash-program.ts";
import { readRuleset } from "../../kernel/iptables/parser/ruleset.ts";
import { ip } from "../../model/testing/records.ts";
import type { IpAddress } from "../../net/ip.ts";
import { nodeFacts } from "../facts.ts";
import { programOf } from "../netfilter/calling-order.ts";
import { type Outcome, outcomesOf } from "../netfilter/tree.ts";
import { walk } from "../netfilter/walk.ts";
import { endText, newPacket, type PacketQuestion } from "../packet.ts";
import { iptablesChains } from "./ruleset.ts";
import { readIpSets } from "./saved-sets.ts";
import { type RecentLists, UNKNOWN_LISTS } from "./surroundings.ts";

const facts = nodeFacts({ addresses: [ip("192.0.2.10")] });

function saved(nat: readonly string[], filter: readonly string[] = []): string {
  const chains = (rules: readonly string[]) => {
    const names = new Set(rules.flatMap((rule) => /^-A (\S+)/.exec(rule)?.[1] ?? []));
    return [...names].map((name) => `:${name} ${/^[A-Z]+$/.test(name) ? "ACCEPT" : "-"} [0:0]`);
  };
  const table = (name: string, rules: readonly string[]) => [`*${name}`, ...chains(rules), ...rules, "COMMIT"];
  return `${[...table("nat", nat), ...table("filter", filter)].join("\n")}\n`;
}

/** No client has been here before. */
const EMPTY_LISTS: RecentLists = { has: () => false };

function walked(text: string, rest: Partial<PacketQuestion>, recent: RecentLists, record: "ends" | "matches") {
  const program = programOf(iptablesChains(readRuleset(text), "IPv4", { facts, sets: readIpSets([]), recent }));
  const packet = newPacket({
    family: "IPv4",
    protocol: "tcp",
    source: ip("10.0.0.9"),
    sourcePort: 50_000,
    destination: ip("10.96.0.1"),
    destinationPort: 80,
    inInterface: "eth0",
    ...rest,
  });
  return walk(program, packet, facts, { record });
}

function ask(text: string, rest: Partial<PacketQuestion> = {}, recent: RecentLists = EMPTY_LISTS): Outcome[] {
  return [...outcomesOf(walked(text, rest, recent, "ends"))];
}

function summary({ odds, fate, packet, assumptions }: Outcome): string {
  const assumed = assumptions.length === 0 ? "" : ` if ${assumptions.join(" and ")}`;
  if (fate.kind !== "sent" && fate.kind !== "delivered") return `${odds.toFixed(3)} ${fate.kind}${assumed}`;
  return `${odds.toFixed(3)} ${fate.kind} ${endText(packet.destination, packet.destinationPort)}${assumed}`;
}

const SERVICE = [
  "-A PREROUTING -j SERVICES",
  '-A SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "shop/web cluster IP" -m tcp --dport 80 -j SVC-1',
  "-A SVC-1 -m statistic --mode random --probability 0.33333333349 -j SEP-1",
  "-A SVC-1 -m statistic --mode random --probability 0.50000000000 -j SEP-2",
  "-A SVC-1 -j SEP-3",
  ...[1, 2, 3].map((n) => `-A SEP-${n} -p tcp -m tcp -j DNAT --to-destination 10.0.0.${n}:8080`),
];

describe("iptables rules, walked", () => {
  test("probabilities of rules that follow each other add up", () => {
    assert.deepEqual(ask(saved(SERVICE)).map(summary), [
      "0.333 sent 10.0.0.1:8080",
      "0.333 sent 10.0.0.2:8080",
      "0.333 sent 10.0.0.3:8080",
    ]);
  });

  test("a hash of the client decides, where it is known", () => {
    const rules = (isFlow: boolean) =>
      SERVICE.map((rule) =>
        rule.replace(/-m statistic .* -j SEP-(\d)/, (_, n) => {
          const bytecode = hashProgramText({ family: "IPv4", isFlow, seed: Number(n), below: 2 ** 31 });
          return `-m bpf --bytecode "${bytecode}" -j SEP-${n}`;
        }),
      );
    const endFor = (source: IpAddress, port?: number) =>
      [1, 2].find((seed) => (clientHash({ isFlow: port !== undefined, seed }, source, port) ?? 0) < 2 ** 31) ?? 3;
    for (let last = 1; last < 60; last += 1) {
      const source = ip(`10.1.0.${last}`);
      const [bySource, byFlow] = [endFor(source), endFor(source, 4_000 + last)];
      assert.deepEqual(ask(saved(rules(false)), { source }).map(summary), [`1.000 sent 10.0.0.${bySource}:8080`]);
      const flow = { source, sourcePort: 4_000 + last };
      assert.deepEqual(ask(saved(rules(true)), flow).map(summary), [`1.000 sent 10.0.0.${byFlow}:8080`]);
    }
    assert.deepEqual(ask(saved(rules(true)), { sourcePort: undefined }).map(summary), [
      "0.500 sent 10.0.0.1:8080",
      "0.250 sent 10.0.0.2:8080",
      "0.250 sent 10.0.0.3:8080",
    ]);
    const digests = ask(saved(rules(true)), { sourcePort: undefined }).map(({ hashed }) => hashed);
    assert.equal(new Set(digests).size, 3);
  });

  test("a chain that ends returns to its caller, and -g to the caller's caller", () => {
    const rules = [
      "-A FORWARD -j A",
      "-A FORWARD -j DROP",
      "-A A -g B",
      "-A A -j ACCEPT",
      "-A B -m comment --comment nothing",
    ];
    assert.deepEqual(ask(saved([], rules)).map(summary), ["1.000 dropped"]);
    const jumping = rules.map((rule) => rule.replace("-g", "-j"));
    assert.deepEqual(ask(saved([], jumping)).map(summary), ["1.000 sent 10.96.0.1:80"]);
  });

  test("ACCEPT ends one table and not the others", () => {
    const filter = ["-A FORWARD -s 10.0.0.0/8 -j ACCEPT", "-A FORWARD -j DROP"];
    const other = "*security\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p tcp -j DROP\nCOMMIT\n";
    assert.deepEqual(ask(saved([], filter)).map(summary), ["1.000 sent 10.96.0.1:80"]);
    assert.deepEqual(ask(saved([], filter) + other).map(summary), ["1.000 dropped"]);
  });

  test("a policy of DROP is named", () => {
    const text = saved([], ["-A FORWARD -s 10.9.0.0/16 -j ACCEPT"]).replace(":FORWARD ACCEPT", ":FORWARD DROP");
    assert.deepEqual(ask(text)[0]?.fate, { kind: "dropped", by: "the policy of iptables -t filter FORWARD" });
  });

  test("marks are set, tested and taken away", () => {
    const rules = [
      "-A PREROUTING -j MARK --set-xmark 0x4000/0x4000",
      "-A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
      "-A POSTROUTING -j MARK --set-xmark 0x4000/0x0",
      "-A POSTROUTING -j MASQUERADE --random-fully",
    ];
    const [only] = ask(saved(rules), { mark: 1 });
    assert.deepEqual([only?.packet.mark, only?.packet.isMasqueraded], [1, true]);
  });

  test("the mark of a connection that is under way is not known, where a rule restores it", () => {
    const mangle = (rule: string) => `*mangle\n:FORWARD ACCEPT [0:0]\n-A FORWARD ${rule}\nCOMMIT\n`;
    const restored = (mask: string) => `-j CONNMARK --restore-mark --nfmask ${mask} --ctmask ${mask}`;
    const ways = ask(mangle(restored("0x81")), { mark: 0x83, state: "established" });
    assert.deepEqual(ways.map(summary), [
      "1.000 uncertain if the connection's mark has any of 0x81",
      "1.000 sent 10.96.0.1:80 if not: the connection's mark has any of 0x81",
    ]);
    assert.equal(ways[1]?.packet.mark, 2);
    const bits = ask(mangle(restored("0x80")), { mark: 0x81, state: "established" });
    assert.deepEqual(bits.map(summary), [
      "1.000 sent 10.96.0.1:80 if the connection's mark has 0x80",
      "1.000 sent 10.96.0.1:80 if not: the connection's mark has 0x80",
    ]);
    assert.deepEqual(
      bits.map(({ packet }) => packet.mark),
      [0x81, 1],
    );
    assert.deepEqual(ask(mangle(restored("0x80")), { state: "untracked" }).map(summary), ["1.000 sent 10.96.0.1:80"]);
    // What this packet's own rules have set is known.
    for (const set of ["--set-xmark 0x5/0x5", "--save-mark --nfmask 0x5 --ctmask 0xf"]) {
      const own = ask(mangle(`-j CONNMARK ${set}\n-A FORWARD ${restored("0x5")}`), { mark: 7, state: "established" });
      assert.deepEqual([own.map(summary), own[0]?.packet.mark], [["1.000 sent 10.96.0.1:80"], 7], set);
    }
  });

  test("in raw, a packet has no connection yet: neither a state, nor a mark that it could save or get", () => {
    const raw = (rule: string) => `*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING ${rule}\nCOMMIT\n`;
    const restore = raw("-j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff");
    const [way, ...others] = ask(restore, { mark: 0x81 });
    assert.deepEqual([way?.packet.mark, others], [0x81, []]);
    const dropped = (state: string) => ask(raw(`-m conntrack --ctstate ${state} -j DROP`)).map(({ fate }) => fate.kind);
    assert.deepEqual([dropped("NEW"), dropped("INVALID")], [["sent"], ["dropped"]]);
    // The rule matches all the same, as a live trace says.
    const { events } = walked(restore, {}, EMPTY_LISTS, "matches");
    assert.equal(events.filter(({ kind }) => kind === "match").length, 1);
  });

  test("affinity follows what the list has, and both ways are shown where it is not known", () => {
    const rules = [
      "-A PREROUTING -m recent --rcheck --seconds 60 --reap --name SEP-1 --mask 255.255.255.255 --rsource -j SEP-1",
      "-A SEP-1 -p tcp -m recent --set --name SEP-1 --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.0.0.1:8080",
    ];
    assert.deepEqual(ask(saved(rules)).map(summary), ["1.000 sent 10.96.0.1:80"]);
    const knows = ask(saved(rules), {}, { has: () => true });
    assert.deepEqual(knows.map(summary), ["1.000 sent 10.0.0.1:8080"]);
    assert.deepEqual(knows[0]?.entries, [{ set: "recent SEP-1", key: "10.0.0.9" }]);
    assert.deepEqual(ask(saved(rules), {}, UNKNOWN_LISTS).map(summary), [
      "1.000 sent 10.0.0.1:8080 if 10.0.0.9 is in the list SEP-1",
      "1.000 sent 10.96.0.1:80 if not: 10.0.0.9 is in the list SEP-1",
    ]);
  });

  test("a match that is not understood makes two ways, unless the rest of the rule cannot hold", () => {
    const opaque = '-A FORWARD -d 10.96.0.1/32 -m string --string "a b" --algo bm -j DROP';
    assert.deepEqual(ask(saved([], [opaque])).map(summary), [
      '1.000 dropped if -m string --string "a b" --algo bm matches',
      '1.000 sent 10.96.0.1:80 if not: -m string --string "a b" --algo bm matches',
    ]);
    assert.deepEqual(ask(saved([], [opaque.replace("96.0.1", "96.0.2")])).map(summary), ["1.000 sent 10.96.0.1:80"]);
  });

  test("a refusal is told as the rule has it, also behind a match that is not understood", () => {
    const rule = '-A FORWARD -p tcp -m string --string "a b" --algo bm -j REJECT --reject-with tcp-reset';
    const [fate] = ask(saved([], [rule])).map((outcome) => outcome.fate);
    assert.equal(fate?.kind === "refused" && fate.answer, "tcp-reset");
  });

  test("a rule for a protocol of tunnels does not match packets of TCP", () => {
    const rules = [
      "-A FORWARD -i eth0 -p esp -j DROP",
      '-A FORWARD -p vrrp -m comment --comment "two -p tcp" -j DROP',
      "-A FORWARD -s 10.0.0.0/8 -p 89 -m ttl --ttl-lt 2 -j DROP",
    ];
    for (const rule of rules) assert.deepEqual(ask(saved([], [rule])).map(summary), ["1.000 sent 10.96.0.1:80"], rule);
    const others = "-A FORWARD ! -p ipencap -j DROP";
    assert.deepEqual(ask(saved([], [others])).map(summary), ["1.000 dropped"]);
  });

  test("a target that is not understood ends in doubt, one that only logs does not", () => {
    assert.deepEqual(
      ask(saved([], ["-A FORWARD -j TPROXY --on-port 1"])).map(({ fate }) => fate.kind),
      ["uncertain"],
    );
    assert.deepEqual(
      ask(saved([], ['-A FORWARD -j LOG --log-prefix "a -j DROP"'])).map(({ fate }) => fate.kind),
      ["sent"],
    );
  });

  test("a target that changes a packet so that its way ends is in doubt; what does nothing asks nothing", () => {
    const raw = (rule: string) => ask(`*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING ${rule}\nCOMMIT\n`);
    for (const rule of ["-j TTL --ttl-set 1", "-j TTL --ttl-dec 64", "-j CT --zone 9", "-j NFQUEUE --queue-num 1"])
      assert.deepEqual(
        raw(rule).map(({ fate }) => fate.kind),
        ["uncertain"],
        rule,
      );
    for (const rule of [
      "-j TTL --ttl-set 64",
      "-j CT --helper ftp",
      "-p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu",
      "-m u32 --u32 0x0 -j LOG",
      "-m u32 --u32 0x0",
      "-j TEE --gateway 10.0.0.4",
    ])
      assert.deepEqual(raw(rule).map(summary), ["1.000 sent 10.96.0.1:80"], rule);
    const source = saved(["-A POSTROUTING -s 10.0.0.0/8 -j SNAT --to-source 192.0.2.1 --random-fully"]);
    assert.deepEqual(
      ask(source).map(({ packet }) => packet.source),
      ["192.0.2.1"],
    );
  });

  test("nat has nothing to say of packets that a rule takes out of connection tracking, as a DNS cache on each node does", () => {
    const comment = '-m comment --comment "NodeLocal DNS Cache: skip conntrack -j" ';
    const rule = `-A PREROUTING -d 192.0.2.10/32 -p udp ${comment}-m udp --dport 53 -j CT --notrack`;
    const text = `*raw\n:PREROUTING ACCEPT [0:0]\n${rule}\nCOMMIT\n${saved([
      "-A PREROUTING -d 192.0.2.10/32 -j DNAT --to-destination 10.0.0.1",
    ])}`;
    const to = { protocol: "udp", destination: ip("192.0.2.10"), destinationPort: 53 };
    for (const one of [text, text.replace("CT --notrack", "NOTRACK")]) {
      assert.deepEqual(ask(one, to).map(summary), ["1.000 delivered 192.0.2.10:53"]);
      assert.deepEqual(ask(one, { ...to, destinationPort: 54 }).map(summary), ["1.000 sent 10.0.0.1:54"]);
    }
  });

  test("in a long chain the same rules are met, whichever key they have", () => {
    const others = Array.from({ length: 40 }, (_, n) => `-A FORWARD -d 10.1.0.${n}/32 -j DROP`);
    const ports = Array.from({ length: 40 }, (_, n) => `-A FORWARD -p tcp -m tcp --dport ${1000 + n} -j DROP`);
    const text = saved([], [...others, ...ports, "-A FORWARD -p udp -j REJECT --reject-with icmp-port-unreachable"]);
    assert.deepEqual(ask(text).map(summary), ["1.000 sent 10.96.0.1:80"]);
    assert.deepEqual(ask(text, { destination: ip("10.1.0.7") }).map(summary), ["1.000 dropped"]);
    assert.deepEqual(ask(text, { destinationPort: 1039 }).map(summary), ["1.000 dropped"]);
    assert.deepEqual(ask(text, { protocol: "udp" }).map(summary), ["1.000 refused"]);
  });
});
