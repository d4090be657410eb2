/**
 * iptables-nft's rules as `nft list ruleset` prints them: libxtables translates each match and target, and some translations are
 * false. What is read of the text never contradicts what is read of iptables-save; it may say less.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ip } from "../../src/model/testing/records.ts";
import { programOfDumps } from "../../src/trace/dump/program.ts";
import { type Dump, recogniseDumps } from "../../src/trace/dump/recognise.ts";
import { nodeFacts } from "../../src/trace/facts.ts";
import { outcomesOf } from "../../src/trace/netfilter/tree.ts";
import { walk } from "../../src/trace/netfilter/walk.ts";
import { CONNECTION_STATES, newPacket, type PacketQuestion } from "../../src/trace/packet.ts";
import { fateText } from "../../src/trace/report/fate-text.ts";
import { netnsFor, netnsSkip } from "../../testkit/support/netns.ts";
import { skipWithoutTool } from "../../testkit/support/tools.ts";

/** `!` stands where a negation may be. */
const MATCHES = `
-m conntrack !--ctstate NEW; -m conntrack !--ctstate INVALID; -m conntrack !--ctstate RELATED,ESTABLISHED
-m conntrack !--ctstate DNAT; -m conntrack !--ctstate SNAT; -m conntrack !--ctstate NEW,DNAT; -m conntrack !--ctstate SNAT,DNAT
-m conntrack !--ctstate RELATED,ESTABLISHED,DNAT; -m conntrack !--ctstate UNTRACKED; -m conntrack !--ctstate NEW,UNTRACKED
-m conntrack !--ctstatus ASSURED; -m conntrack !--ctproto 6; -m conntrack !--ctorigsrc 10.0.0.0/24
-m conntrack !--ctorigdst 10.96.0.1; -m conntrack !--ctreplsrc 10.0.0.1; -m conntrack !--ctorigdstport 80
-m state !--state NEW; -m state !--state RELATED,ESTABLISHED; -m mark !--mark 0x4000/0x4000; -m mark !--mark 0x10
-m connmark !--mark 0x1/0xff; !-s 10.0.0.0/24; !-d 10.96.0.1; !-i eth0; !-i eth+; !-p tcp; !-p udp; !-p icmp; !-f
-p tcp -m tcp !--dport 80; -p tcp -m tcp !--sport 1024:65535; -p udp -m udp !--dport 53:80; -p tcp -m tcp !--syn
-p tcp -m multiport !--dports 80,443,8000:8090; -p tcp -m multiport !--ports 80,443; -p udp -m multiport !--sports 53
-p tcp -m tcp !--tcp-flags SYN,RST,ACK,FIN SYN; -m iprange !--src-range 10.0.0.1-10.0.0.100; -m addrtype !--dst-type LOCAL
-m iprange !--dst-range 10.96.0.1-10.96.0.9; -m addrtype !--src-type LOCAL; -m addrtype !--dst-type UNICAST
-m pkttype !--pkt-type unicast; -m length !--length 0:2000; -m dscp !--dscp 1; -m statistic --mode random !--probability 0.5
-m statistic --mode nth !--every 3 --packet 0; -p icmp -m icmp !--icmp-type 8; -m mac !--mac-source 00:11:22:33:44:55
-m owner !--uid-owner 0; -m limit --limit 5/s; -m string --string x --algo bm; -m u32 --u32 0x0=0`
  .split(/[;\n]/)
  .map((text) => text.trim())
  .filter((text) => text !== "")
  .flatMap((text) => (text.includes("!") ? [text.replace("!", ""), text.replace("!", "! ")] : [text]))
  .map((text) => ["filter", `${text} -j DROP`] as const);

const TARGETS = `
mangle -j MARK --set-mark 0x10; mangle -j MARK --set-xmark 0x4000/0x4000; mangle -j MARK --or-mark 0x4000
mangle -j MARK --and-mark 0xff; mangle -j MARK --xor-mark 0x4010; mangle -j MARK --set-mark 0x1/0xff; mangle -j CONNMARK --set-mark 0x1
mangle -j CONNMARK --set-xmark 0x1/0xf; mangle -j CONNMARK --save-mark; mangle -j CONNMARK --restore-mark
mangle -j CONNMARK --save-mark --nfmask 0xff --ctmask 0xff; mangle -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff
mangle -j CONNMARK --or-mark 0x3; mangle -j CONNMARK --and-mark 0x3; mangle -j DSCP --set-dscp 1; mangle -j NFLOG; mangle -j TRACE
raw -j CT --notrack; raw -j NOTRACK; raw -j CT --zone 1; nat -p tcp -j DNAT --to-destination 10.180.0.1
nat -p tcp -m tcp -j DNAT --to-destination 10.180.0.1:8080; nat -p tcp -j DNAT --to-destination 10.180.0.1-10.180.0.4
nat -p tcp -m tcp -j DNAT --to-destination :8080; nat -p tcp -m tcp -j DNAT --to-destination 10.180.0.1:8080 --persistent
nat -p tcp -j REDIRECT; nat -p tcp -m tcp -j REDIRECT --to-ports 8080; nat -p tcp -m tcp -j REDIRECT --to-ports 8080-8090
filter -j REJECT; filter -j REJECT --reject-with icmp-host-unreachable; filter -p tcp -j REJECT --reject-with tcp-reset
filter -j REJECT --reject-with icmp-admin-prohibited; filter -j DROP; filter -j ACCEPT; filter -j RETURN; filter -j LOG`
  .split(/[;\n]/)
  .flatMap((text) => {
    const [, table, rule] = /^(\w+) (.*)$/.exec(text.trim()) ?? [];
    return table === undefined || rule === undefined ? [] : [[table, rule] as const];
  });

/** How nft prints the base chain of an iptables table by which locally made packets leave. */
const HEADS: Readonly<Record<string, string>> = {
  raw: "type filter hook output priority raw",
  mangle: "type route hook output priority mangle",
  nat: "type nat hook output priority -100",
  filter: "type filter hook output priority filter",
};
const NODE = nodeFacts({
  addresses: [ip("192.168.0.2"), ip("127.0.0.1")],
  routes: [{ cidr: "0.0.0.0/0", device: "eth1", address: ip("192.168.0.2") }],
});

function packets(): PacketQuestion[] {
  const all: PacketQuestion[] = [];
  for (const state of CONNECTION_STATES)
    for (const protocol of ["tcp", "udp", "icmp"])
      for (const source of ["192.168.0.2", "127.0.0.1"])
        for (const destination of ["10.96.0.1", "127.0.0.1", "192.168.0.2"])
          for (const mark of [0, 0x4001]) {
            const ends = { source: ip(source), destination: ip(destination), inInterface: "" };
            const ports = protocol === "icmp" ? [undefined] : [80, 8080];
            for (const destinationPort of ports) {
              const sourcePort = destinationPort && 40_000;
              all.push({ family: "IPv4", ...ends, protocol, state, mark, sourcePort, destinationPort });
            }
          }
  return all;
}

/** What becomes of each packet; undefined where that is not known. */
function fates(dumps: readonly Dump[], questions: readonly PacketQuestion[]): (string | undefined)[] {
  const options = { family: "IPv4", facts: NODE, knowsClients: false, knowsDynamicSets: false } as const;
  const { program } = programOfDumps(dumps, options);
  return questions.map((question) => {
    const outcomes = [...outcomesOf(walk(program, newPacket(question), NODE, { record: "ends" }))];
    if (outcomes.some(({ fate, assumptions }) => fate.kind === "uncertain" || assumptions.length > 0)) return undefined;
    const texts = outcomes.map((outcome) => {
      const { mark, connectionMark, state } = outcome.packet;
      const fate = fateText(outcome)
        .replace(/ by .*/, "")
        .replaceAll("-", " ");
      // Earlier packets of a connection may have marked it.
      return `${fate}, mark ${mark}, ${question.state === "new" ? `the connection's ${connectionMark.value}, ` : ""}${state}`;
    });
    return [...new Set(texts)].sort().join("; ");
  });
}

test("what nft prints of iptables' rules does not contradict iptables-save", {
  skip: netnsSkip || skipWithoutTool("iptables-nft", "iptables-nft"),
}, async (t) => {
  const { exec } = await netnsFor(t, "xlate");
  const rules = [...MATCHES, ...TARGETS];
  const input = Object.keys(HEADS).map((table) => {
    const own = rules.flatMap(([of, rule], at) => (of === table ? [`-A RULE-${at} ${rule}`] : []));
    const chains = own.map((line) => `:${line.split(" ")[1]} - [0:0]`);
    return [`*${table}`, ":OUTPUT ACCEPT [0:0]", ...chains, ...own, "COMMIT", ""].join("\n");
  });
  const { status, stderr } = await exec("iptables-nft-restore", [], { stdin: input });
  assert.equal(status, 0, stderr);
  const saved = (await exec("iptables-nft-save", [])).stdout;
  const listed = (await exec("nft", ["list", "ruleset"])).stdout;
  const questions = packets();
  const lies: string[] = [];
  const open: string[] = [];
  let known = 0;
  for (const [at, [table, rule]] of rules.entries()) {
    const [, line] = new RegExp(`chain RULE-${at} \\{\\n(.*)\\n`).exec(listed) ?? [];
    const [, own] = new RegExp(`^-A RULE-${at} (.*)$`, "m").exec(saved) ?? [];
    assert.ok(line !== undefined && own !== undefined, rule);
    const text = `table ip ${table} {\n chain OUTPUT {\n ${HEADS[table]}; policy accept;\n${line}\n }\n}\n`;
    const save = `*${table}\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT ${own}\nCOMMIT\n`;
    const byText = fates(recogniseDumps(text, "nft"), questions);
    const bySave = fates(recogniseDumps(save, "iptables-save"), questions);
    const ofNft = `# Generated by iptables-nft-save v1.8.9 (nf_tables) on Sun Nov 29 12:00:00 2026\n${save}`;
    const byBoth = fates([...recogniseDumps(text, "nft"), ...recogniseDumps(ofNft, "iptables-save")], questions);
    const wrong = questions.findIndex((_, packet) => {
      const [one, other] = [byText[packet], bySave[packet]];
      if (one !== undefined && other !== undefined) known += 1;
      return one !== undefined && other !== undefined && one !== other;
    });
    if (questions.some((_, packet) => byBoth[packet] !== bySave[packet])) open.push(rule);
    if (wrong >= 0)
      lies.push(`${rule}: ${line.trim()}: ${JSON.stringify(questions[wrong])}: ${byText[wrong]}, not ${bySave[wrong]}`);
  }
  assert.deepEqual(lies, []);
  assert.deepEqual(open, [], "with both, iptables-save counts");
  assert.ok(known > (rules.length * questions.length) / 2, `only ${known} of ${rules.length * questions.length}`);
});
