/**
 * Rules of other programs beside the proxy's, in a kernel: one packet of each class of packets is sent, and what it meets is
 * compared with its trace, with the fate of its class, and with whether a proof says that it is as the Services ask. The oracle is the packet.
 */
import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { ip } from "../../src/model/testing/records.ts";
import type { IpAddress, IpFamily } from "../../src/net/ip.ts";
import { variantNamed } from "../../src/tools/cli/prove-rules.ts";
import { historyIn } from "../../src/tools/cli/trace-kernel.ts";
import { dumpReaders } from "../../src/tools/cli/trace-rules.ts";
import { classesOf, type PacketClass, type ProvedClass } from "../../src/tools/prove/classes.ts";
import {
  DROPPED,
  type Fate,
  fateText as fateOfClassText,
  isSameFate,
  RANGE_UNKNOWN,
  REFUSED,
  UNSAID,
  UNTOUCHED,
  wayTo,
} from "../../src/tools/prove/fate.ts";
import { rootClasses } from "../../src/tools/prove/proof.ts";
import { ruleFates, specificationSide } from "../../src/tools/prove/sides.ts";
import { programOfDumps } from "../../src/trace/dump/program.ts";
import {
  type Dump,
  DumpError,
  type DumpReader,
  recogniseDump,
  recogniseDumps,
} from "../../src/trace/dump/recognise.ts";
import { unwalkedIn } from "../../src/trace/dump/unwalked.ts";
import { type NodeFacts, nodeFacts } from "../../src/trace/facts.ts";
import { type Outcome, outcomesOf } from "../../src/trace/netfilter/tree.ts";
import { walk } from "../../src/trace/netfilter/walk.ts";
import { endText, newPacket, type Packet, type PacketQuestion } from "../../src/trace/packet.ts";
import { PACKET_FIELDS, type PacketField } from "../../src/trace/question.ts";
import { fateText } from "../../src/trace/report/fate-text.ts";
import { seededRandom } from "../../src/trace/seeded-random.ts";
import type { Scalar } from "../../src/trace/value.ts";
import { netnsSkip } from "../../testkit/support/netns.ts";
import { skipWithoutTool } from "../../testkit/support/tools.ts";
import type { Observed, PacketLab } from "../trace/packet-lab.ts";
import type { Extra, Vocabulary } from "./foreign-dice.ts";
import { type ForeignCommand, type ForeignRules, foreignRules, isWide, vocabularyOf } from "./foreign-rules.ts";
import type { KernelRead } from "./kernel-reader.ts";
import {
  agrees,
  clientsOf,
  clusterOf,
  isUnicast,
  keyOf,
  observedText,
  PLACES,
  type Planned,
  planned,
  traceLab,
  type Variant,
} from "./trace-against-kernel.ts";

/** What became of one set of rules. */
export interface Judged {
  readonly sent: number;
  /** How many packets a proof says to be treated as the Services ask, and otherwise. */
  readonly equal: number;
  readonly different: number;
  /** Why something is not proved, for each reason. */
  readonly unproved: readonly string[];
  /** Packets that met something else than was said. */
  readonly wrong: readonly string[];
  readonly foreign: string;
}

/** A packet of a class. */
interface Sent {
  readonly packet: PacketQuestion;
  /** Others of the class, which are not sent. */
  readonly alike: readonly PacketQuestion[];
  readonly rules: Fate;
  readonly wanted: Fate;
  /** Of the class: in the place of its address and port a fate has each packet's own, where rules keep them. */
  readonly example: Packet;
}

/** A socket for each: a process has a thousand. */
const MOST_PACKETS = 300;
/** What earlier packets wrote into sets may keep one back that was waited for. A socket that is still connecting hears a refusal of its second SYN, after a second. */
const LIMIT_MS = 1_500;
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

/** Sets of rules beside the proxy's, one after the other, in one lab. */
export class ProveFuzz {
  readonly #lab: PacketLab;
  readonly #extras: ReadonlySet<Extra>;
  readonly #reader: ChildProcess;

  constructor(lab: PacketLab) {
    this.#lab = lab;
    this.#extras = extrasOf(lab);
    this.#reader = lab.fork(fileURLToPath(new URL("kernel-reader.ts", import.meta.url)));
  }

  end(): void {
    this.#reader.kill();
  }

  /** What this kernel has that not all have. */
  get extras(): ReadonlySet<Extra> {
    return this.#extras;
  }

  /** @param seed of the cluster and of the rules. */
  async judge(variant: Variant, family: IpFamily, seed: number): Promise<Judged> {
    const lab = this.#lab;
    const cluster = clusterOf(family, seed);
    const { node, pods, outside, other, podCIDR, serviceCIDR } = PLACES[family];
    const words = vocabularyOf(cluster, [node, ...pods, ...outside, ...other], [podCIDR, serviceCIDR]);
    const foreign = foreignRules(seed, words, this.#extras);
    const plan = await planned(cluster, variant, family, seed);
    const done: string[] = [];
    const apply = (commands: readonly ForeignCommand[]) => () => {
      for (const { argv, input } of commands) {
        const { status, stderr } = lab.tool(argv, input);
        const refused = status === 0 ? "" : `REFUSED (${stderr.trim()}) `;
        done.push(`${refused}${argv.join(" ")}${input === undefined ? "" : `\n${input}`}`);
      }
    };
    emptyLegacy(lab);
    if (this.#extras.has("ipvs")) lab.tool(["ipvsadm", "-C"]);
    await lab.load(plan.rules, family, { before: apply(foreign.before), after: apply(foreign.after) });
    const isOfKernel = seed % 2 === 1;
    done.push(isOfKernel ? "# read by --kernel" : "# read from dumps");
    const dumps = await this.#dumps(isOfKernel, family, foreign, seed).catch(namedIfCut);
    if (typeof dumps === "string") return { ...NOTHING, unproved: [dumps], foreign: done.join("\n") };
    const doubts = unwalkedIn(dumps, family);
    const facts = factsIn(family);
    const specification = specificationSide(cluster, plan.node, plan.config, deviationsOf(variant, plan));
    const classes = classesOf(family, rootClasses(family, ownOf(family)), [
      ruleFates(dumps, family, facts),
      specification.fates,
    ]);
    const { sent, unproved } = packetsOf(lab, this.#extras, classes, words, seed);
    // What runs at devices is named, and not walked.
    const wrong = doubts.some((doubt) => doubt.includes("runs at a ")) ? [] : await compared(lab, dumps, family, sent);
    const equal = sent.filter(({ rules, wanted }) => isSameFate(wanted, rules)).length;
    const counts = { sent: sent.length, equal, different: sent.length - equal };
    return { ...counts, unproved: [...doubts, ...unproved], wrong, foreign: done.join("\n") };
  }

  async #dumps(isOfKernel: boolean, family: IpFamily, foreign: ForeignRules, seed: number): Promise<Dump[]> {
    if (isOfKernel) return await this.#kernel(family);
    const before = await this.#lab.chainHistory();
    const dumps = await dumpsIn(this.#lab, family, foreign, seed, this.#extras);
    // A sysdump has what a daemon has seen; a listing alone has not.
    const isSysdump = before !== undefined && seed % 4 === 0;
    return isSysdump ? [...dumps, ...historyIn(await this.#lab.chainHistory(), before.until)] : dumps;
  }

  async #kernel(family: IpFamily): Promise<Dump[]> {
    const answer = once(this.#reader, "message");
    this.#reader.send(family);
    const [read] = await answer;
    const { dumps, servers, generation = 0, error }: KernelRead = read;
    if (error !== undefined) throw new Error(`the kernel cannot be read: ${error}`);
    const readers = await dumpReaders();
    const seen = historyIn(await this.#lab.chainHistory(), generation);
    return [...dumps, ...servers.map((text) => serversIn(text, readers)), ...seen];
  }
}

const NOTHING = { sent: 0, equal: 0, different: 0, wrong: [] };

/** iptables-save ends in the middle of some tables that nft made; of such a dump nothing is said. */
function namedIfCut(error: unknown): string {
  if (error instanceof DumpError) return error.message;
  throw error;
}

function serversIn(text: string, readers: readonly DumpReader[]): Dump {
  return text === "" ? { kind: "chains", tool: "ipvsadm", chains: () => [] } : recogniseDump(text, "ipvsadm", readers);
}

const ownOf = (family: IpFamily): IpAddress[] => [PLACES[family].node, ip(family === "IPv4" ? "127.0.0.1" : "::1")];

const deviationsOf = ({ name }: Variant, { config }: Planned) => variantNamed(name).deviations(config);

/** Tables of iptables-legacy stay, and so do their hooks. */
function emptyLegacy(lab: PacketLab): void {
  for (const tool of ["iptables-legacy", "ip6tables-legacy"]) {
    const saved = lab.tool([`${tool}-save`]).stdout;
    if (!/^-|^:\S+ (?!ACCEPT)/m.test(saved)) continue;
    const empty = saved.replace(/^(?:-.*|:\S+ - .*)\n/gm, "").replace(/^(:\S+) DROP/gm, "$1 ACCEPT");
    lab.tool([`${tool}-restore`], empty);
  }
}

async function dumpsIn(
  lab: PacketLab,
  family: IpFamily,
  { hasFlags }: ForeignRules,
  seed: number,
  extras: ReadonlySet<Extra>,
): Promise<Dump[]> {
  const tool = family === "IPv4" ? "iptables" : "ip6tables";
  const listing = ["nft", ...(hasFlags || seed % 8 === 0 ? [] : ["-j"]), "list", "ruleset"];
  const tools = [listing, [`${tool}-nft-save`], [`${tool}-legacy-save`], ["ipset", "save"]];
  if (extras.has("ipvs")) tools.push(["ipvsadm", "-S", "-n"]);
  const texts = tools.map((argv) => lab.tool(argv).stdout);
  const readers = await dumpReaders();
  return texts.flatMap((text, at) => (text.trim() ? recogniseDumps(text, `dump ${at}`, readers) : []));
}

/** What this kernel has, tried. */
function extrasOf(lab: PacketLab): ReadonlySet<Extra> {
  const takes = (chain: string) => {
    const flows = "flowtable ft { hook ingress priority 0; devices = { cni0, eth0 }; }";
    const input = `table ip probe { ${chain.includes("@ft") ? flows : ""}\nchain c { type filter hook forward priority 0; ${chain}; }; }`;
    const isTaken = lab.tool(["nft", "-f", "-"], `${input}\n`).status === 0;
    if (isTaken) lab.tool(["nft", "delete table ip probe"]);
    return isTaken;
  };
  const tried: Readonly<Record<Extra, () => boolean>> = {
    queue: () => takes("queue num 7"),
    flow: () => takes("flow add @ft"),
    sctp: () => lab.canSend("sctp"),
    ipvs: () => lab.tool(["ipvsadm", "-C"]).status === 0,
  };
  return new Set((["queue", "flow", "sctp", "ipvs"] as const).filter((extra) => tried[extra]()));
}

/** Packets of a class that are walked beside the one that is sent. */
const ALIKE = 3;

/** One packet of each class that a client of the lab can send. */
function packetsOf(
  lab: PacketLab,
  extras: ReadonlySet<Extra>,
  classes: Iterable<ProvedClass<Fate>>,
  words: Vocabulary,
  seed: number,
) {
  const random = seededRandom(seed);
  const found: Sent[] = [];
  const unproved = new Set<string>();
  for (const { packets: all, example, fates, unproved: why } of classes) {
    if (why !== undefined) unproved.add(why);
    const [rules, wanted] = fates;
    if (why !== undefined || rules === undefined || wanted === undefined) continue;
    const [packet, ...alike] = Array.from({ length: 1 + ALIKE }, () => memberOf(all, example, words, random));
    if (packet === undefined || !isSendable(packet, extras)) continue;
    found.push({ packet, alike: alike.flatMap((one) => one ?? []), rules, wanted, example });
  }
  const every = Math.ceil(found.length / MOST_PACKETS);
  const some = found.filter((_, at) => at % every === 0);
  const sent = some.map((one): Sent => ({ ...one, packet: { ...one.packet, sourcePort: lab.takePort() } }));
  return { sent, unproved: [...unproved] };
}

const isSendable = (
  { protocol, source, destination, destinationPort }: PacketQuestion,
  extras: ReadonlySet<Extra>,
): boolean =>
  (protocol === "tcp" || protocol === "udp" || (protocol === "sctp" && extras.has("sctp"))) &&
  isUnicast(destination) &&
  destinationPort !== 0 &&
  source !== destination;

const isIn = (all: PacketClass, packet: Partial<Record<PacketField, Scalar | undefined>>): boolean =>
  PACKET_FIELDS.every((field) => all[field].has(packet[field] ?? ""));

/** Some packet of the class, with words that rules have; undefined if no client of the lab can send it. */
function memberOf(
  all: PacketClass,
  { family, protocol, destination, destinationPort }: Packet,
  words: Vocabulary,
  random: () => number,
): PacketQuestion | undefined {
  const pick = <T>(list: readonly T[]): T | undefined => list[Math.floor(random() * list.length)];
  const clients = clientsOf(family).filter(
    ({ source, inInterface }) => all.source.has(source) && all.inInterface.has(inInterface),
  );
  const addresses = [...PLACES[family].other, ...words.addresses.map(ip)].filter((one) => all.destination.has(one));
  const ports = words.ports.filter((one) => all.destinationPort.has(one));
  const client = pick(clients);
  if (client === undefined) return undefined;
  const end = {
    destination: pick([...addresses, destination]) ?? destination,
    destinationPort: pick([...ports, destinationPort]),
  };
  const packet = { family, protocol, ...client, ...end, bridgePort: "", udpLength: SENT_LENGTH, sourcePort: 40_000 };
  // A machine's packets to itself do not pass here.
  return isIn(all, packet) && packet.source !== packet.destination ? packet : undefined;
}

/** @returns the packets that did not meet a fate of theirs. */
async function compared(
  lab: PacketLab,
  dumps: readonly Dump[],
  family: IpFamily,
  sent: readonly Sent[],
): Promise<string[]> {
  const facts = factsIn(family);
  const [traced, first] = [0, 1].map(() =>
    programOfDumps(dumps, { family, facts, knowsClients: true, knowsDynamicSets: true }),
  );
  const open = programOfDumps(dumps, { family, facts, knowsClients: true, knowsDynamicSets: false });
  if (traced === undefined || first === undefined) throw new TypeError("two programs");
  const again = ruleFates(dumps, family, facts);
  const outcomesIn = ({ program }: typeof traced, packet: PacketQuestion) => [
    ...outcomesOf(walk(program, newPacket(packet), facts, { record: "ends" })),
  ];
  const outcomesFor = (packet: PacketQuestion) => outcomesIn(traced, packet);
  // What earlier packets wrote into sets changes the way of later ones, of which a proof says nothing.
  const isAsFirst = (packet: PacketQuestion, outcomes: readonly Outcome[]) =>
    outcomes.map(fateText).join() === outcomesIn(first, packet).map(fateText).join();
  // What may leave nothing is not waited for: all others are seen by then.
  const isQuiet = (packet: PacketQuestion) =>
    outcomesFor(packet).some(
      ({ fate, packet: after }) => fate.kind === "dropped" || fate.kind === "uncertain" || after.state === "untracked",
    );
  const quiet = new Set(sent.flatMap(({ packet }) => (isQuiet(packet) ? [keyOf(packet)] : [])));
  for (const { packet } of sent) lab.send(packet);
  const observed = await lab.observed((key) => quiet.has(key), LIMIT_MS);
  const arrivals = lab.arrivals();
  const wrong: string[] = [];
  // Of a packet that was dropped nothing tells what it wrote, if that was left to chance.
  let isMemoryKnown = true;
  // Nor what this node's answers wrote, which are not walked.
  let hasAnswered = false;
  for (const one of sent) {
    const { packet, rules } = one;
    const tracked = observed.get(keyOf(packet)) ?? { kind: "silence" };
    const arrived: Observed = arrivals.get(keyOf(packet)) ?? { kind: "silence" };
    const outcomes = outcomesFor(packet);
    const isMet = (outcome: Outcome): boolean => {
      const { fate, packet: after } = outcome;
      if (fate.kind === "uncertain") return true;
      // Nothing of it is known but that it comes out.
      if (after.state === "untracked" && fate.kind === "delivered") return true;
      // One of the node to itself is listed before its refusal is heard, perhaps after a second.
      const isHeard = fate.kind === "refused" && after.inInterface === "lo" && tracked.kind === "passed";
      if (isHeard) return agrees(outcome, { ...tracked, isRefused: true });
      return agrees(outcome, after.state === "untracked" && arrived.kind !== "silence" ? arrived : tracked);
    };
    const [met, ...alsoMet] = outcomes.filter(isMet);
    const isOfAnswers = met === undefined && hasAnswered && outcomesIn(open, packet).some(isMet);
    if (outcomes.some(({ fate }) => fate.kind === "delivered" || fate.kind === "refused")) hasAnswered = true;
    const to = `${packet.source} "${packet.inInterface}" to ${endText(packet.destination, packet.destinationPort)}`;
    const seen = `${packet.protocol} ${to}: ${observedText(tracked)} (${observedText(arrived)})`;
    if (met === undefined && !isOfAnswers && (isMemoryKnown || isAsFirst(packet, outcomes)))
      wrong.push(`${seen}, said: ${outcomes.map((outcome) => fateText(outcome)).join("; ")}`);
    for (const other of [packet, ...one.alike]) {
      const alone = again.fateOf(newPacket(other), () => {});
      const end = endText(other.destination, other.destinationPort);
      const isSame = isSameFate(alone, rules) || isSameFate(withOwn(alone, other), withOwn(rules, one.example));
      if (!isSame)
        wrong.push(
          `${seen}, class: ${fateOfClassText(rules)}, from ${other.source} to ${end}: ${fateOfClassText(alone)}`,
        );
    }
    const isSeen = met !== undefined && met.packet.state !== "untracked" && met.fate.kind !== "uncertain";
    const verdict = isSeen && isAsFirst(packet, outcomes) ? wrongVerdict(one, tracked) : undefined;
    if (verdict !== undefined) wrong.push(`${seen}, ${verdict}`);
    for (const entry of met?.entries ?? []) traced.remember(entry);
    if (alsoMet.some(({ entries }) => !isDeepStrictEqual(entries, met?.entries))) isMemoryKnown = false;
  }
  return wrong;
}

/** Whether the packet met what the Services ask, if that is said; or not, if not. */
function wrongVerdict({ packet, rules, wanted, example }: Sent, observed: Observed): string | undefined {
  // Of the node's own packets, sockets refuse some; what the kernel takes as its own has no other source.
  if (packet.inInterface === "" || wanted.has(UNSAID)) return undefined;
  const way = wayOf(packet, observed);
  const plainly = (fate: Fate): ReadonlySet<string> =>
    new Set([...fate.keys(), ...withOwn(fate, example).keys()].map((one) => plain(one)));
  const isIn = (ways: ReadonlySet<string>) => ways.has(way) || ways.has(ofOwnEnd(way, packet));
  const isAllowed = isIn(plainly(wanted)) || (wanted.has(RANGE_UNKNOWN) && (way === UNTOUCHED || way === DROPPED));
  const isEqual = isSameFate(wanted, rules);
  if (isEqual && !isAllowed) return `said to be equal to ${fateOfClassText(wanted)}`;
  // A translation to the node's own address looks like masquerading.
  const isAlike = [...rules.keys()].some((one) => one.includes(", from ")) || isIn(plainly(rules));
  if (!isEqual && wanted.size === 1 && isAllowed && !isAlike) return `said to differ from ${fateOfClassText(wanted)}`;
  return undefined;
}

type End = Pick<PacketQuestion, "destination" | "destinationPort">;

const withOwn = (fate: Fate, end: End): Fate => new Map([...fate].map(([way, odds]) => [ofOwnEnd(way, end), odds]));

/** The same text for all packets whose address or port a rule keeps. */
function ofOwnEnd(way: string, { destination, destinationPort }: End): string {
  const port = new RegExp(`(?<=\\]|\\d\\.\\d{1,3}):${destinationPort}\\b`, "g");
  const kept = way.replaceAll(port, ":its own port");
  return kept.replace(endText(destination, 0).replace(/0$/, ""), "its own address:");
}

/** Without the client's next connection, and without who is led there by a hash. */
const plain = (way: string): string => way.replace(/(?:, always|; the client's next |, by hash ).*$/, "");

function wayOf({ source, destination, destinationPort }: PacketQuestion, observed: Observed): string {
  if (observed.kind !== "passed") return observed.kind === "refused" ? REFUSED : DROPPED;
  const isChanged = observed.destination !== destination || observed.port !== destinationPort;
  const end = isChanged ? endText(observed.destination, observed.port) : undefined;
  const isOfNode = observed.source === PLACES.IPv4.node || observed.source === PLACES.IPv6.node;
  const way = wayTo(end, isOfNode);
  return isOfNode || observed.source === source ? way : `${way}, from ${observed.source}`;
}

/** Where the order of two programs' chains decides, for example, the rules do not tell. */
const MOST_UNPROVED = 0.15;
/** From so many sets on, the share says something. */
const MANY = 40;

const VARIANTS: readonly Variant[] = [
  { name: "nftables", mode: "nftables", layout: "Compatible" },
  { name: "flat", mode: "nftables", layout: "Flat" },
  { name: "iptables", mode: "iptables", layout: "Compatible" },
];

interface Runs {
  readonly sets: number;
  /** The first seed, if they are the same in each run. */
  readonly firstFixed: number | undefined;
}

/** Registers the test of so many sets, or of as many as `KPTS_PROVE_FUZZ_SETS` says. */
export function testProofs({ sets, firstFixed }: Runs): void {
  const asked = process.env.KPTS_PROVE_FUZZ_SETS;
  const count = Number(asked ?? sets);
  const chosen = Number(process.env.KPTS_PROPERTY_SEED ?? Date.now() % 1_000_000);
  const first = asked === undefined ? (firstFixed ?? chosen) : chosen;
  describe("beside rules of other programs", { skip: netnsSkip || skipWithoutTool("conntrack", "conntrack") }, () => {
    let lab: PacketLab;
    let fuzz: ProveFuzz;
    before(async () => {
      lab = await traceLab();
      lab.watchArrivals();
      lab.watchChains();
      // Copies of packets end there.
      for (const address of ["192.0.2.99", "2001:db8:9::9"]) lab.tool(["ip", "route", "add", "blackhole", address]);
      fuzz = new ProveFuzz(lab);
    });
    after(async () => {
      fuzz.end();
      await lab.remove();
    });

    test(`a packet meets what a proof says, or the proof says that it does not know: ${count} sets`, async (t) => {
      t.diagnostic(
        `seeds ${first} to ${first + count - 1}; this kernel has ${[...fuzz.extras].join(", ") || "no queue, flow table, SCTP or ipvs"}`,
      );
      const total = { sent: 0, equal: 0, different: 0 };
      const [usual, wide] = [
        { sets: 0, unproved: 0 },
        { sets: 0, unproved: 0 },
      ];
      for (let seed = first; seed < first + count; seed += 1) {
        const variant = VARIANTS[seed % VARIANTS.length];
        assert.ok(variant);
        const family = seed % 4 === 3 ? "IPv6" : "IPv4";
        const found = await fuzz.judge(variant, family, seed);
        assert.deepEqual(found.wrong, [], `seed ${seed}, ${variant.name}, ${family}, beside\n${found.foreign}`);
        for (const key of ["sent", "equal", "different"] as const) total[key] += found[key];
        const kind = isWide(seed, fuzz.extras) ? wide : usual;
        kind.sets += 1;
        if (found.unproved.length > 0) kind.unproved += 1;
      }
      t.diagnostic(`${total.sent} packets: ${total.equal} as the Services ask, ${total.different} otherwise`);
      t.diagnostic(
        `not proved whole: ${usual.unproved} of ${usual.sets} sets; ${wide.unproved} of ${wide.sets} with queues and the like`,
      );
      if (count >= MANY)
        assert.ok(
          usual.unproved <= MOST_UNPROVED * usual.sets,
          `${usual.unproved} of ${usual.sets} sets are not proved whole`,
        );
    });
  });
}
