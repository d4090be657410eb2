/**
 * `npm run bench -- trace`: the cost of `kube-proxy trace` beyond loading, by size and mode; how fast the output of
 * iptables-save is parsed; and what a running daemon needs to answer a trace that its page requests. Processor time of
 * the main thread, so that a busy machine counts little. Needs no root.
 */

import { offlineNode } from "../src/contract/inspect/offline-node.ts";
import { checkedSettings } from "../src/lib/plan-settings.ts";
import { silentLogger } from "../src/logging/logger.ts";
import { ProxyState } from "../src/model/proxy-state.ts";
import { modeNamed, type ProxyMode } from "../src/modes/registry.ts";
import type { IpAddress } from "../src/net/ip.ts";
import { rulesForObjects } from "../src/tools/cli/trace-rules.ts";
import { dumpsOf } from "../src/tools/explain/planned-rules.ts";
import { traceAnswer } from "../src/tools/page/trace-answer.ts";
import { deviceAddresses } from "../src/trace/dump/device-addresses.ts";
import { programOfDumps } from "../src/trace/dump/program.ts";
import type { Dump } from "../src/trace/dump/recognise.ts";
import { nodeFacts } from "../src/trace/facts.ts";
import { walk } from "../src/trace/netfilter/walk.ts";
import { newPacket } from "../src/trace/packet.ts";
import { traceText } from "../src/trace/report/text.ts";
import { benchObjects, benchService } from "./cluster.ts";
import type { Bench } from "./driver.ts";
import { longestTurn } from "./latency.ts";
import { ownCpuMs } from "./memory.ts";
import { type Figures, Notes } from "./table.ts";

const NODE = "10.64.0.1" as IpAddress; // canonical, as is the next
const CLIENT = "10.64.0.9" as IpAddress;
/** Packets after the first, and requests from the page. */
const LATER = 100;
const LATER_ASKED = 5;
const SCATTER = 7919;
const CHOICES = { family: "IPv4", knowsClients: false, knowsDynamicSets: false } as const;

interface Subject {
  readonly name: string;
  readonly mode: ProxyMode;
  /** @default those that `trace -f` walks */
  readonly forms?: readonly string[];
}

interface TraceTask extends Subject {
  readonly services: number;
  readonly endpoints: number;
}

const SUBJECTS: readonly Subject[] = [
  { name: "nftables", mode: "nftables" },
  { name: "iptables", mode: "iptables" },
  { name: "iptables-save", mode: "iptables", forms: ["iptables-save"] },
  { name: "ipvs", mode: "ipvs" },
  { name: "userspace", mode: "userspace" },
];

/** Judged up to this many services: the time of an answer, and how long a daemon does nothing else at a stretch. */
const JUDGED = 10_000;
const ANSWER_MS = 300;
const TURN_MS = 20;
/** Target for 30 MB of iptables-save. */
const READ_BYTES = 30_000_000;
const READ_MS = 2_000;

export const bench: Bench = {
  name: "trace",
  about: "What kube-proxy trace takes, processor time.",
  needsRoot: false,
  options: {
    quick: { help: "the smaller size" },
    sizes: { value: "N,…", initial: "1000,10000", quick: "1000", help: "services" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each" },
  },
  isOnHost: true,
  tasks(given) {
    const all = given.wholes("sizes").flatMap((services) =>
      SUBJECTS.map((subject) => {
        const task: TraceTask = { ...subject, services, endpoints: given.whole("endpoints") };
        return [`${subject.name}, ${services}`, [task]] as const;
      }),
    );
    return Object.fromEntries(all);
  },
  worker: measure,
};

const configOf = async (mode: ProxyMode) =>
  (await checkedSettings({ config: { mode, clusterCIDR: "10.128.0.0/9" }, node: "node-a" })).config;

const clusterIPOf = (index: number) => benchService(index).clusterIP as IpAddress; // canonical

const packetTo = (destination: IpAddress) =>
  newPacket({
    ...{ family: "IPv4", protocol: "tcp", inInterface: "eth0" },
    ...{ source: CLIENT, sourcePort: 40_000, destination, destinationPort: 80 },
  });

async function measure(task: TraceTask): Promise<Figures> {
  const { name, forms, services } = task;
  const notes = new Notes();
  const isDump = forms !== undefined;
  const [answerMs, turnMs] = services > JUDGED ? [] : [ANSWER_MS, TURN_MS];
  // First: the code is as cold as in a command.
  if (!isDump) notes.add("trace -f", await command(task), answerMs);
  const dumps = await plannedDumps(task);
  const facts = nodeFacts({ addresses: [NODE, ...deviceAddresses(dumps)] });
  const reading = timed(() => programOfDumps(dumps, { ...CHOICES, facts }));
  const ask = (index: number) => {
    const packet = packetTo(clusterIPOf(index));
    return traceText({ packet, rules: "", notes: [], root: walk(reading.result.program, packet, facts) });
  };
  const first = timed(() => ask(services - 1));
  const next = timed(() => {
    for (let index = 0; index < LATER; index += 1) ask((index * SCATTER) % services);
  });
  if (!first.result.includes("→")) throw new Error(`${name}: no rule matched`);
  const bytes = dumps.reduce((sum, dump) => sum + textLength(dump), 0);
  notes.add("text, kB", bytes / 1000);
  notes.add("  read", reading.cpuMs);
  if (isDump) notes.add("  30 MB of it", (reading.cpuMs / bytes) * READ_BYTES, bytes > 1_000_000 ? READ_MS : undefined);
  // Reads rules and indexes sets as it meets them.
  notes.add("first packet", first.cpuMs, answerMs);
  notes.add("  each after it", next.cpuMs / LATER);
  if (!isDump) await measurePage(task, notes, answerMs, turnMs);
  return notes.figures;
}

/** From objects to the text of one packet's path, as the command does it. */
async function command({ mode, services, endpoints }: TraceTask): Promise<number> {
  const objects = benchObjects(services, endpoints);
  const config = await configOf(mode);
  await modeNamed(mode).loadRenderer();
  const address = clusterIPOf(services - 1);
  const before = ownCpuMs();
  const target = { family: "IPv4", address, port: 80, protocol: "tcp" } as const;
  const rules = await rulesForObjects({ ...objects, problems: [] }, config, target, () => {});
  const facts = nodeFacts({ addresses: [...rules.addresses, ...deviceAddresses(rules.dumps)] });
  const { program } = programOfDumps(rules.dumps, { ...CHOICES, facts });
  const packet = packetTo(address);
  const text = traceText({ packet, rules: rules.name, notes: rules.notes, root: walk(program, packet, facts) });
  if (!/sent to|delivered/.test(text)) throw new Error(`${mode}: the packet is not sent on`);
  return ownCpuMs() - before;
}

/** Only names need it, and the question has addresses. */
const NO_STATE = new ProxyState({
  ...{ family: "IPv4", nodeName: "", allowExternalIPs: true, now: () => 0, log: silentLogger },
});

/** Requests the path to the last service, as a running daemon's page does. */
async function measurePage(
  { mode, services, endpoints }: TraceTask,
  notes: Notes,
  answerMs?: number,
  wantedTurnMs?: number,
): Promise<void> {
  const config = await configOf(mode);
  const node = offlineNode(benchObjects(services, endpoints), config, "IPv4", () => {});
  const daemon = {
    config,
    podCIDRs: [],
    families: [{ family: "IPv4" as const, state: NO_STATE }],
  };
  const question = { from: "node", to: clusterIPOf(services - 1), port: "80", protocol: "tcp", isVerbose: false };
  const answer = async (): Promise<void> => {
    const { outcomes } = await traceAnswer(daemon, question, async () => node);
    if (outcomes.length === 0) throw new Error(`${mode}: the packet has no outcome`);
  };
  const startMs = ownCpuMs();
  await answer();
  const firstMs = ownCpuMs() - startMs;
  let turnMs = 0;
  for (let index = 0; index < LATER_ASKED; index += 1) turnMs = Math.max(turnMs, await longestTurn(answer));
  notes.add("the page of a daemon: first answer", firstMs, answerMs);
  notes.add("the page: each after it", (ownCpuMs() - startMs - firstMs) / LATER_ASKED);
  notes.add("the page: longest turn", turnMs, wantedTurnMs);
}

/** There is no text where rules are only rendered when a packet meets them. */
function textLength(dump: Dump): number {
  if ("text" in dump) return dump.text.length;
  return dump.kind === "nftables" ? JSON.stringify(dump.objects).length : 0;
}

async function plannedDumps({ mode, forms, services, endpoints }: TraceTask): Promise<Dump[]> {
  const config = await configOf(mode);
  const node = offlineNode(benchObjects(services, endpoints), config, "IPv4", () => {});
  const { traceForms = [], loadRenderer } = modeNamed(mode);
  const renderer = await loadRenderer();
  const render = (form: string) => renderer(node, { config, form, service: undefined, missing: new Set() });
  return await dumpsOf(forms ?? traceForms, render);
}

function timed<T>(work: () => T): { readonly result: T; readonly cpuMs: number } {
  const before = ownCpuMs();
  const result = work();
  return { result, cpuMs: ownCpuMs() - before };
}
