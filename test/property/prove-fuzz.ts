/**
 * Rules of other programs beside the proxy's, in a kernel: one packet of each class of packets is sent, and what it meets is
 * compared with its fate in a proof. The oracle is the packet.
 */
import { ip } from "../../src/model/testing/records.ts";
import type { IpFamily } from "../../src/net/ip.ts";
import { classesOf } from "../../src/tools/prove/classes.ts";
import { rootClasses } from "../../src/tools/prove/proof.ts";
import { ruleFates } from "../../src/tools/prove/sides.ts";
import { programOfDumps } from "../../src/trace/dump/program.ts";
import { type Dump, recogniseDumps } from "../../src/trace/dump/recognise.ts";
import { unwalkedIn } from "../../src/trace/dump/unwalked.ts";
import { type NodeFacts, nodeFacts } from "../../src/trace/facts.ts";
import { outcomesOf } from "../../src/trace/netfilter/tree.ts";
import { walk } from "../../src/trace/netfilter/walk.ts";
import { endText, newPacket, type PacketQuestion } from "../../src/trace/packet.ts";
import { fateText } from "../../src/trace/report/fate-text.ts";
import type { Observed, PacketLab } from "../trace/packet-lab.ts";
import { type ForeignCommand, type ForeignRules, foreignRules, vocabularyOf } from "./foreign-rules.ts";
import {
  agrees,
  clientsOf,
  clusterOf,
  isUnicast,
  keyOf,
  observedText,
  PLACES,
  planned,
  type Variant,
} from "./trace-against-kernel.ts";

/** What became of one set of rules. */
export interface Judged {
  readonly sent: number;
  /** Why something is not proved, for each reason. */
  readonly unproved: readonly string[];
  /** Packets that met something else than was said. */
  readonly wrong: readonly string[];
  readonly foreign: string;
}

/** A socket for each: a process has a thousand. */
const MOST_PACKETS = 300;
/** A datagram of the lab: one byte behind its header. */
const SENT_LENGTH = 9;

/** Routes of the lab. */
function factsIn(family: IpFamily): NodeFacts {
  const { node, pods, outside } = PLACES[family];
  const length = family === "IPv4" ? 32 : 128;
  const to = (device: string) => (address: string) => ({ cidr: `${address}/${length}`, device, address: node });
  return nodeFacts({
    addresses: [PLACES.IPv4.node, PLACES.IPv6.node],
    routes: [
      ...pods.map(to("cni0")),
      ...outside.map(to("eth0")),
      { cidr: family === "IPv4" ? "0.0.0.0/0" : "::/0", device: "out", address: node },
    ],
  });
}

/** @param seed of the cluster and of the rules. */
export async function judge(lab: PacketLab, variant: Variant, family: IpFamily, seed: number): Promise<Judged> {
  const cluster = clusterOf(family, seed);
  const { node, pods, outside, other, podCIDR, serviceCIDR } = PLACES[family];
  const words = vocabularyOf(cluster, [node, ...pods, ...outside, ...other], [podCIDR, serviceCIDR]);
  const foreign = foreignRules(seed, words);
  const { rules } = await planned(cluster, variant, family, seed);
  const done: string[] = [];
  const apply = (commands: readonly ForeignCommand[]) => () => {
    for (const { argv, input } of commands) {
      const { status, stderr } = lab.tool(argv, input);
      const refused = status === 0 ? "" : `REFUSED (${stderr.trim()}) `;
      done.push(`${refused}${argv.join(" ")}${input === undefined ? "" : `\n${input}`}`);
    }
  };
  for (const tool of ["iptables-legacy", "ip6tables-legacy"])
    for (const table of ["raw", "mangle", "nat", "filter"]) {
      if (!lab.tool([`${tool}-save`]).stdout.includes(`*${table}`)) continue;
      for (const flush of [["-F"], ["-X"]]) lab.tool([tool, "-t", table, ...flush]);
    }
  await lab.load(rules, family, { before: apply(foreign.before), after: apply(foreign.after) });
  const facts = factsIn(family);
  const dumps = dumpsIn(lab, family, foreign, seed);
  const doubts = unwalkedIn(dumps, family);
  const { packets, unproved } = packetsOf(lab, dumps, family, facts);
  const wrong = await compared(lab, dumps, family, facts, packets);
  return { sent: packets.length, unproved: [...doubts, ...unproved], wrong, foreign: done.join("\n") };
}

function dumpsIn(lab: PacketLab, family: IpFamily, { hasFlags }: ForeignRules, seed: number): Dump[] {
  const tool = family === "IPv4" ? "iptables" : "ip6tables";
  const listing = ["nft", ...(hasFlags || seed % 2 === 0 ? [] : ["-j"]), "list", "ruleset"];
  const tools = [listing, [`${tool}-nft-save`], [`${tool}-legacy-save`]];
  const texts = tools.map((argv) => lab.tool(argv).stdout);
  return texts.flatMap((text, at) => (text.trim() ? recogniseDumps(text, `dump ${at}`) : []));
}

function packetsOf(lab: PacketLab, dumps: readonly Dump[], family: IpFamily, facts: NodeFacts) {
  const own = [PLACES[family].node, ip(family === "IPv4" ? "127.0.0.1" : "::1")];
  const packets: Omit<PacketQuestion, "sourcePort">[] = [];
  const unproved = new Set<string>();
  for (const one of classesOf(family, rootClasses(family, own), [ruleFates(dumps, family, facts)])) {
    const { packets: all, example } = one;
    if (one.unproved !== undefined) unproved.add(one.unproved);
    const { destinationPort, protocol } = example;
    const destination = PLACES[family].other.find((address) => all.destination.has(address)) ?? example.destination;
    const client = clientsOf(family).find(
      ({ source, inInterface }) => all.source.has(source) && all.inInterface.has(inInterface),
    );
    const isSendable = (protocol === "tcp" || protocol === "udp") && isUnicast(destination) && destinationPort !== 0;
    const isMet = one.unproved === undefined && all.udpLength.has(SENT_LENGTH);
    if (!isMet || client === undefined || !isSendable || client.source === destination) continue;
    packets.push({ family, ...client, destination, destinationPort, protocol, udpLength: SENT_LENGTH });
  }
  const every = Math.ceil(packets.length / MOST_PACKETS);
  const some = packets.filter((_, at) => at % every === 0);
  return { packets: some.map((packet) => ({ ...packet, sourcePort: lab.takePort() })), unproved: [...unproved] };
}

/** @returns the packets that did not meet a fate of theirs. */
async function compared(
  lab: PacketLab,
  dumps: readonly Dump[],
  family: IpFamily,
  facts: NodeFacts,
  packets: readonly PacketQuestion[],
): Promise<string[]> {
  const traced = programOfDumps(dumps, { family, facts, knowsClients: true, knowsDynamicSets: true });
  const outcomesFor = (packet: PacketQuestion) => [
    ...outcomesOf(walk(traced.program, newPacket(packet), facts, { record: "ends" })),
  ];
  const isQuiet = (packet: PacketQuestion) =>
    outcomesFor(packet).every(({ fate, packet: after }) => fate.kind === "dropped" || after.state === "untracked");
  const quiet = new Set(packets.filter(isQuiet).map(keyOf));
  for (const packet of packets) lab.send(packet);
  const observed = await lab.observed((key) => quiet.has(key));
  const arrivals = lab.arrivals();
  const wrong: string[] = [];
  for (const packet of packets) {
    const tracked = observed.get(keyOf(packet)) ?? { kind: "silence" };
    const outcomes = outcomesFor(packet);
    const met = outcomes.find((outcome) => {
      const { fate, packet: after } = outcome;
      if (fate.kind === "uncertain") return true;
      // Nothing of it is known but that it comes out.
      if (after.state === "untracked" && fate.kind === "delivered") return true;
      const seen = after.state === "untracked" ? (arrivals.get(keyOf(packet)) ?? tracked) : tracked;
      return agrees(outcome, seen);
    });
    for (const entry of met?.entries ?? []) traced.remember(entry);
    if (met !== undefined) continue;
    const arrived: Observed = arrivals.get(keyOf(packet)) ?? { kind: "silence" };
    const to = `${packet.source} "${packet.inInterface}" to ${endText(packet.destination, packet.destinationPort)}`;
    const said = outcomes.map((outcome) => fateText(outcome)).join("; ");
    wrong.push(`${packet.protocol} ${to}: ${observedText(tracked)} (${observedText(arrived)}), said: ${said}`);
  }
  return wrong;
}
