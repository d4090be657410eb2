import assert from "node:assert/strict";
import { test } from "node:test";
import { parseLoosely } from "../../kernel/iptables/parser/loose-rule.ts";
import { readRuleset } from "../../kernel/iptables/parser/ruleset.ts";
import { type IpAddress, parseIpAddress } from "../../net/ip.ts";
import { nodeFacts } from "../facts.ts";
import { programOf } from "../netfilter/calling-order.ts";
import { outcomesOf } from "../netfilter/tree.ts";
import { walk } from "../netfilter/walk.ts";
import { newPacket, type PacketQuestion } from "../packet.ts";
import { fateText } from "../report/fate-text.ts";
import { iptablesChains } from "./ruleset.ts";
import { readIpSets } from "./saved-sets.ts";
import { UNKNOWN_LISTS } from "./surroundings.ts";

const ip = (text: string): IpAddress => {
  const address = parseIpAddress(text);
  assert.ok(address !== undefined);
  return address;
};

const PACKET: PacketQuestion = {
  ...{ family: "IPv4", protocol: "tcp", inInterface: "eth0" },
  ...{ source: ip("10.0.0.9"), sourcePort: 40000, destination: ip("10.96.0.1"), destinationPort: 80 },
};

const NODE = nodeFacts({ addresses: [ip("192.168.0.2"), ip("10.0.1.205")] });

/** Ends of a packet in tables that are written as `table CHAIN rule`, with what they assume. */
function ends(rules: readonly string[], packet: Partial<PacketQuestion> = {}): string[] {
  const byTable = Map.groupBy(rules, (rule) => rule.split(" ")[0] ?? "");
  const text = [...byTable]
    .map(([table, lines]) => {
      const own = lines.map((line) => line.slice(table.length + 1));
      const chains = new Set(own.map((line) => line.split(" ")[0] ?? ""));
      const heads = [...chains].map((chain) => `:${chain} ${/^[A-Z]+$/.test(chain) ? "ACCEPT" : "-"} [0:0]`);
      return `*${table}\n${heads.join("\n")}\n${own.map((line) => `[3:180] -A ${line}`).join("\n")}\nCOMMIT\n`;
    })
    .join("");
  const around = { facts: NODE, sets: readIpSets([]), recent: UNKNOWN_LISTS };
  const program = programOf(iptablesChains(readRuleset(text), packet.family ?? "IPv4", around));
  const root = walk(program, newPacket({ ...PACKET, ...packet }), NODE, {});
  return Array.from(outcomesOf(root), (outcome) => {
    const { odds, assumptions } = outcome;
    const share = odds === 1 ? "" : `${odds.toFixed(2)} `;
    return `${share}${fateText(outcome)}${assumptions.length > 0 ? ` if ${assumptions.join(", and ")}` : ""}`;
  });
}

const KEPT = "sent to 10.96.0.1:80, from 10.0.0.9 (kept)";
const DROPPED = (rule: string) => `dropped by iptables -t filter FORWARD rule 1: ${rule}`;

test("one false condition decides, wherever it stands in the rule and with unknown conditions beside it", () => {
  for (const rule of [
    "-p tcp -m string --string x --algo bm -m tcp --dport 81 -j DROP",
    "-p tcp -m tcp --dport 81 -m u32 --u32 0x0 -j DROP",
    "-d 10.1.0.0/16 -m bpf --bytecode 1 -j DROP",
    "-p udp -m string --string x --algo bm -j DROP",
    "-m addrtype --src-type LOCAL -m time --timestart 10:00:00 -j DROP",
    "-m set --match-set gone dst -m mark --mark 0x1 -j DROP",
    "-m statistic --mode random --probability 0.5 -m rpfilter --invert -m mark --mark 0x1 -j DROP",
    "-p tcp -m tcp --dport 81 --tcp-flags FIN,SYN,RST,ACK SYN -j DROP",
    "-p vrrp -m string --string x --algo bm -j FANCY --with 1",
  ]) {
    assert.deepEqual(ends([`filter FORWARD ${rule}`]), [KEPT], rule);
  }
});

test("a rule that does nothing for the packet's way makes no fork, whether it matches or not", () => {
  for (const rule of [
    "-m limit --limit 3/min -j LOG --log-prefix x",
    "-m set --match-set gone dst",
    "-m recent --rcheck --name a --rsource -m statistic --mode random --probability 0.5 -j NFLOG --nflog-group 1",
    "-m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80",
    "-m string --string x --algo bm -j CONNMARK --set-mark 0x1",
  ]) {
    assert.deepEqual(ends([`filter FORWARD ${rule}`]), [KEPT], rule);
  }
  // What such a rule may have marked is not known afterwards.
  const marked = "mangle FORWARD -m string --string x --algo bm -j CONNMARK --set-xmark 0x1/0x1";
  assert.equal(ends([marked, "filter FORWARD -m connmark --mark 0x1/0x1 -j DROP"]).length, 2);
  assert.equal(ends([marked, "filter FORWARD -m connmark --mark 0x2/0x2 -j DROP"]).length, 1);
});

test("matches of other programs decide where the packet says enough", () => {
  const cases: readonly (readonly [matches: boolean, rule: string, packet?: Partial<PacketQuestion>])[] = [
    [true, "-p tcp -m multiport --dports 22,80,443:444"],
    [false, "-p tcp -m multiport --dports 22,443:444"],
    [true, "-p tcp -m multiport ! --dports 22"],
    [true, "-p tcp -m multiport --ports 40000"],
    [false, "-p tcp -m multiport --sports 80"],
    [true, "-m iprange --src-range 10.0.0.1-10.0.0.20"],
    [false, "-m iprange --src-range 10.0.0.1-10.0.0.20 --dst-range 10.0.0.1-10.0.0.2"],
    [true, "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN"],
    [false, "-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN"],
    [true, "-p tcp --syn"],
    [true, "-p tcp -m tcp --tcp-flags SYN SYN"],
    [false, "-p tcp -m tcp --tcp-flags FIN SYN"],
    [false, "-p tcp -m tcp --tcp-flags ALL SYN,ACK"],
    [true, "-p tcp -m tcp --tcp-flags SYN,RST,PSH SYN"],
    [false, "-p tcp -m tcp --tcp-flags FIN,SYN,RST,PSH,ACK,URG NONE"],
    [false, "-m icmp --icmp-type 8"],
    [false, "-m owner --uid-owner 1000"],
    [true, "-m owner ! --uid-owner 1000"],
    [false, "-m connmark --mark 0x80/0x80"],
    [true, "-m connmark ! --mark 0x80/0x80"],
    [false, "-m ipvs --ipvs"],
    [false, "-m ipvs --ipvs --vdir ORIGINAL --vmethod MASQ"],
    [false, "-m physdev --physdev-out vethwe-bridge", { bridgePort: "" }],
    [false, "-m physdev ! --physdev-in vethwe-bridge", { bridgePort: "vethwe-bridge" }],
    [true, "-m conntrack --ctorigdst 10.96.0.0/16 --ctorigdstport 80 --ctproto 6"],
    [false, "-m conntrack --ctstate NEW --ctorigdstport 81"],
    [true, "-m conntrack --ctstate NEW --ctdir ORIGINAL"],
    [false, "-m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL"],
    [false, "-m addrtype --dst-type LOCAL --limit-iface-in"],
    [true, "-m addrtype --dst-type UNICAST --limit-iface-in"],
  ];
  for (const [matches, rule, packet] of cases) {
    const text = `${rule} -j DROP`;
    assert.deepEqual(ends([`filter FORWARD ${text}`], packet), [matches ? DROPPED(text) : KEPT], rule);
  }
});

test("what is not known is asked by the name of the match, and one answer serves all rules with it", () => {
  const socket = "-p tcp -m socket --transparent";
  assert.deepEqual(ends([`filter FORWARD ${socket} -m tcp --dport 81 -j ACCEPT`, `filter FORWARD ${socket} -j DROP`]), [
    `dropped by iptables -t filter FORWARD rule 2: ${socket} -j DROP if -m socket --transparent matches`,
    `${KEPT} if not: -m socket --transparent matches`,
  ]);
  const limited = ["-m limit --limit 1/s -j DROP", "-p tcp -m limit --limit 1/s -j DROP"];
  assert.equal(ends(limited.map((rule) => `filter FORWARD ${rule}`)).length, 3, "each rule has its own limit");
  assert.deepEqual(
    ends(["filter INPUT -m addrtype --dst-type LOCAL --limit-iface-in -j DROP"], {
      destination: ip("192.168.0.2"),
    }).map((end) => end.split(" if ")[1]),
    ["192.168.0.2 is an address of eth0", "not: 192.168.0.2 is an address of eth0"],
  );
  assert.deepEqual(
    ends(["nat PREROUTING -p tcp -m statistic --mode nth --every 4 --packet 0 -j DNAT --to-destination 10.0.0.1"]),
    ["0.25 sent to 10.0.0.1:80, from 10.0.0.9 (kept)", `0.75 ${KEPT}`],
  );
});

test("targets of other programs do what the kernel does, or say what they are", () => {
  const cases: readonly (readonly [rule: string, end: string, packet?: Partial<PacketQuestion>])[] = [
    [
      "nat POSTROUTING -j SNAT --to-source 10.0.1.205 --random-fully",
      "sent to 10.96.0.1:80, from 10.0.1.205 (translated)",
    ],
    [
      "nat POSTROUTING -p tcp -j SNAT --to-source 10.0.1.205:1024-65535",
      "sent to 10.96.0.1:80, from 10.0.1.205 (translated)",
    ],
    [
      "nat POSTROUTING -j SNAT --to-source 10.0.1.205-10.0.1.207",
      "sent to 10.96.0.1:80, from an address that is not known (translated)",
    ],
    [
      "nat POSTROUTING -p tcp -j MASQUERADE --to-ports 1024-2000",
      "sent to 10.96.0.1:80, from the node's address (masqueraded)",
    ],
    ["nat PREROUTING -p tcp -j DNAT --to-destination :8080", "sent to 10.96.0.1:8080, from 10.0.0.9 (kept)"],
    ["nat PREROUTING -j DNAT --to-destination 10.1.0.1 --random-fully", "sent to 10.1.0.1:80, from 10.0.0.9 (kept)"],
    ["nat PREROUTING -j DNAT --to-destination 10.1.0.1-10.1.0.9", "not known: one of 10.1.0.1-10.1.0.9 is chosen"],
    [
      "nat PREROUTING -p tcp -j REDIRECT --to-ports 15001",
      "delivered to a process of the node at 127.0.0.1:15001, from 10.0.0.9 (kept)",
    ],
    ["nat PREROUTING -d 10.96.0.0/24 -j NETMAP --to 172.16.5.0/24", "sent to 172.16.5.1:80, from 10.0.0.9 (kept)"],
    [
      "nat POSTROUTING -s 10.0.0.0/20 -j NETMAP --to 172.16.16.0/20",
      "sent to 10.96.0.1:80, from 172.16.16.9 (translated)",
    ],
    ["raw PREROUTING -j CT --timeout slow", KEPT],
    [
      "mangle PREROUTING -p tcp -j TPROXY --on-port 33333 --on-ip 127.0.0.1 --tproxy-mark 0x200/0xffffffff",
      "not known: TPROXY gives it to the program that listens at port 33333, and drops it if none does",
    ],
    [
      "filter FORWARD -j NFQUEUE --queue-num 3 --queue-bypass",
      "not known: the target NFQUEUE hands the packet to another program, and may drop it if none listens",
    ],
    ["filter FORWARD -j FANCY --with 1", "not known: the target FANCY is not understood"],
    [
      "filter FORWARD -p tcp -j REJECT --reject-with icmp-whatever",
      "refused (icmp-whatever) by iptables -t filter FORWARD rule 1: -p tcp -j REJECT --reject-with icmp-whatever",
    ],
  ];
  for (const [rule, end, packet] of cases) assert.deepEqual(ends([rule], packet), [end], rule);
});

test("what the node sends has a device from the first hook on", () => {
  const own = { inInterface: "", source: ip("192.168.0.2") };
  const [one, other] = ends(["filter OUTPUT -o eth1 -j DROP"], own);
  assert.match(`${one}; ${other}`, /dropped by .*; sent|sent.*; dropped by/, "its routes are not known");
  assert.match(ends(["filter OUTPUT -o lo -j DROP"], { ...own, destination: ip("192.168.0.2") }).join(), /^dropped/);
});

test("a refusal that does not leave the node is none", () => {
  const refusal = "filter FORWARD -d 10.96.0.1/32 -j REJECT";
  assert.match(ends([refusal]).join(), /^refused/);
  assert.match(
    ends([refusal, "filter OUTPUT -p icmp -j DROP"]).join(),
    /^dropped by .*; its answer is dropped by .* OUTPUT/,
  );
  assert.match(ends([refusal, "filter OUTPUT -d 10.0.0.8/32 -j DROP"]).join(), /^refused/);
  assert.match(
    ends([refusal, "filter OUTPUT -m conntrack ! --ctstate RELATED,ESTABLISHED -j DROP"]).join(),
    /^refused/,
  );
  assert.match(ends([`${refusal} --reject-with tcp-reset`, "filter OUTPUT -p icmp -j DROP"]).join(), /^refused/);
});

test("a refusal from a loopback address reaches another host's only with route_localnet", () => {
  const own = { inInterface: "", source: ip("192.168.0.2"), destination: ip("10.96.0.9") };
  const rules = ["nat OUTPUT -p tcp -j REDIRECT --to-ports 8080", "filter INPUT -p tcp -m tcp --dport 8080 -j REJECT"];
  assert.match(ends(rules, own).join(), /^refused/);
  const translated = ["nat POSTROUTING -j SNAT --to-source 10.180.1.1", ...rules];
  assert.match(ends(translated, own).join(), /^not known: .* depends on route_localnet/);
});

test("a refusal's answer has the connection of what was refused", () => {
  const own = { ...{ inInterface: "", source: ip("127.0.0.1") }, ...{ destination: ip("10.96.0.1") } };
  const refusal = "filter OUTPUT -d 10.96.0.1/32 -j REJECT";
  const kubelet =
    "filter OUTPUT ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP";
  assert.match(ends([kubelet, refusal], own).join(), /^refused/);
  const translated = "filter OUTPUT -m conntrack --ctstate DNAT -d 127.0.0.0/8 -j DROP";
  assert.match(ends([translated, refusal], own).join(), /^refused/);
  const dnat = "nat OUTPUT -d 10.96.0.9/32 -j DNAT --to-destination 10.96.0.1";
  assert.match(
    ends([dnat, translated, refusal], { ...own, destination: ip("10.96.0.9") }).join(),
    /answer is dropped by/,
  );
  // From the first hook on.
  assert.match(
    ends(["raw OUTPUT -m conntrack --ctstate INVALID -j DROP", "filter FORWARD -j REJECT"]).join(),
    /^refused/,
  );
  const marked = "filter OUTPUT -p icmp -m connmark --mark 0x7 -j DROP";
  const setMark = "mangle OUTPUT -j CONNMARK --set-xmark 0x7/0xffffffff";
  assert.match(ends([marked, refusal], own).join(), /^refused/);
  assert.match(ends([setMark, marked, refusal], own).join(), /answer is dropped by/);
});

test("a connection's mark is set, saved and restored by bits, in each spelling", () => {
  const mark = (rule: string, ...more: readonly string[]) => {
    const restore = "mangle FORWARD -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff";
    const [end, ...others] = ends([
      ...["mangle PREROUTING -j MARK --set-xmark 0x33/0xffffffff", `mangle PREROUTING ${rule}`],
      ...[...more, restore, "filter FORWARD -m mark --mark 0x13/0xff -j DROP"],
    ]);
    assert.deepEqual(others, []);
    return end?.startsWith("dropped") === true;
  };
  for (const rule of [
    ...["--set-mark 0x13", "--set-xmark 0x13/0xff", "--or-mark 0x13", "--xor-mark 0x13", "--set-mark 0x13/0x10"],
    ...["--save-mark --nfmask 0x1f --ctmask 0x1f", "--save-mark --mask 0x1f"],
  ]) {
    assert.equal(mark(`-j CONNMARK ${rule}`), true, rule);
  }
  assert.equal(mark("-j CONNMARK --save-mark"), false);
  assert.equal(mark("-j CONNMARK --set-mark 0xff", "mangle PREROUTING -j CONNMARK --and-mark 0x13"), true);
});

test("parts that are not understood do not hide the others", () => {
  const rule = parseLoosely(
    '-s 10.0.0.0/8 ! -i eth0 -p vrrp -m comment --comment "-j x" -m hashlimit --hashlimit-name "a b" -m conntrack --ctstate NEW ! --ctorigsrc 1.2.3.4 -j FANCY --to 5',
    "IPv4",
  );
  assert.deepEqual(
    [rule.source?.cidr, rule.inInterface, rule.protocol, rule.matches.map(({ kind }) => kind)],
    ["10.0.0.0/8", { name: "eth0", negated: true }, { protocol: "vrrp", negated: false }, ["comment", "conntrack"]],
  );
  assert.deepEqual(rule.foreign, [
    { name: "hashlimit", words: ["--hashlimit-name", "a b"] },
    { name: "conntrack", words: ["!", "--ctorigsrc", "1.2.3.4"] },
  ]);
  assert.deepEqual(rule.foreignTarget, { name: "FANCY", words: ["--to", "5"] });
});
