/**
 * `npm run bench -- trace`: what `kube-proxy trace` takes beyond loading, by size and mode; how fast what iptables-save prints is read; and
 * what a running daemon takes to answer a trace that its page asks for. Processor time of the main thread, so that a busy machine counts
 * little. Needs no root.
 */
import { rulesForObjects } from "../src/cli/trace-rules.ts";
import { modeNamed, type ProxyMode } from "../src/dataplane/registry.ts";
import { dumpsOf } from "../src/explain/planned-rules.ts";
import { offlineNode } from "../src/inspect/offline-node.ts";
import { checkedSettings } from "../src/lib/plan-settings.ts";
import type { IpAddress } from "../src/net/ip.ts";
import { traceAnswer } from "../src/page/trace-answer.ts";
import { deviceAddresses } from "../src/trace/dump/device-addresses.ts";
import { programOfDumps } from "../src/trace/dump/program.ts";
import type { Dump } from "../src/trace/dump/recognise.ts";
import { nodeFacts } from "../src/trace/facts.ts";
import { walk } from "../src/trace/netfilter/walk.ts";
import { newPacket } from "../src/trace/packet.ts";
import { traceText } from "../src/trace/report/text.ts";
import { benchObjects, benchService } from "./cluster.ts";
import type { Bench, Given, Outcome } from "./driver.ts";
import { longestTurn } from "./latency.ts";
import { ownCpuMs } from "./memory.ts";
import { figuresTable, judgeFigures, ms, type Row, size } from "./table.ts";

const NODE = "10.64.0.1" as IpAddress; // canonical, as is the next
const CLIENT = "10.64.0.9" as IpAddress;
const READ_BYTES = 30_000_000;
/** Packets after the first, and questions of the page. */
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

const SUBJECTS: readonly Subject[] = [
  { name: "nftables", mode: "nftables" },
  { name: "iptables", mode: "iptables" },
  { name: "iptables-save", mode: "iptables", forms: ["iptables-save"] },
  { name: "ipvs", mode: "ipvs" },
  { name: "userspace", mode: "userspace" },
];

interface Figures {
  readonly name: string;
  readonly services: number;
  readonly bytes: number;
  readonly readMs: number;
  /** Of the first packet: rules are read and sets indexed as it meets them. */
  readonly firstMs: number;
  readonly nextMs: number;
  /** What `kube-proxy trace -f` takes beyond loading, all in all; undefined for dumps. */
  readonly commandMs: number | undefined;
  /** Of a running daemon; undefined for dumps. */
  readonly page: PageFigures | undefined;
}

interface PageFigures {
  /** Of the first answer, for which code is compiled, and of one after it. */
  readonly firstMs: number;
  readonly nextMs: number;
  /** For how long the daemon does nothing else at a stretch, in the later answers. */
  readonly turnMs: number;
}

/** Where it is wanted: of so many services at most. */
const upTo10000 =
  (limit: number) =>
  ({ services }: Figures): number | undefined =>
    services <= 10_000 ? limit : undefined;

const ROWS: readonly Row<Figures>[] = [
  ["trace -f, ms", ({ commandMs }) => commandMs, ms, upTo10000(300)],
  ["text", ({ bytes }) => bytes, size],
  ["read, ms", ({ readMs }) => readMs],
  [
    "  30 MB of it, ms",
    ({ name, bytes, readMs }) =>
      name === "iptables-save" && bytes > 1_000_000 ? (readMs / bytes) * READ_BYTES : undefined,
    ms,
    2_000,
  ],
  ["first packet, ms", ({ firstMs }) => firstMs, ms, upTo10000(300)],
  ["each after it, ms", ({ nextMs }) => nextMs],
  ["the page of a daemon: first answer, ms", ({ page }) => page?.firstMs, ms, upTo10000(300)],
  ["  each after it, ms", ({ page }) => page?.nextMs],
  ["  longest turn, ms", ({ page }) => page?.turnMs, ms, upTo10000(20)],
];

export const bench: Bench = {
  name: "trace",
  about: "What kube-proxy trace takes, processor time.",
  needsRoot: false,
  options: {
    quick: { help: "the smaller size" },
    sizes: { value: "N,…", initial: "1000,10000", quick: "1000", help: "services" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each" },
  },
  run: measureAll,
};

async function measureAll(given: Given): Promise<Outcome> {
  const results: Figures[] = [];
  const endpoints = given.whole("endpoints");
  for (const services of given.wholes("sizes")) {
    for (const subject of SUBJECTS) results.push(await measure(subject, services, endpoints));
  }
  const columns = results.map(({ name, services }) => `${name}, ${services}`);
  console.log(figuresTable("mode, services", columns, results, ROWS));
  return { verdicts: judgeFigures(columns, results, ROWS), figures: { results } };
}

const configOf = async (mode: ProxyMode) =>
  (await checkedSettings({ config: { mode, clusterCIDR: "10.128.0.0/9" }, node: "node-a" })).config;

const clusterIPOf = (index: number) => benchService(index).clusterIP as IpAddress; // canonical

const packetTo = (destination: IpAddress) =>
  newPacket({
    ...{ family: "IPv4", protocol: "tcp", inInterface: "eth0" },
    ...{ source: CLIENT, sourcePort: 40_000, destination, destinationPort: 80 },
  });

async function measure(subject: Subject, services: number, endpoints: number): Promise<Figures> {
  const { name, mode, forms } = subject;
  const isDump = forms !== undefined;
  // First: the code is as cold as in a command.
  const commandMs = isDump ? undefined : await command(mode, services, endpoints);
  const dumps = await plannedDumps(subject, services, endpoints);
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
  return {
    ...{ name, services, commandMs, readMs: reading.cpuMs, firstMs: first.cpuMs, nextMs: next.cpuMs / LATER },
    bytes: dumps.reduce((sum, dump) => sum + textLength(dump), 0),
    page: isDump ? undefined : await measurePage(mode, services, endpoints),
  };
}

/** From objects to the text of one packet's way, as the command does it. */
async function command(mode: ProxyMode, services: number, endpoints: number): Promise<number> {
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

/** Asks for the way to the last service, as the page does. */
async function measurePage(mode: ProxyMode, services: number, endpoints: number): Promise<PageFigures> {
  const config = await configOf(mode);
  const node = offlineNode(benchObjects(services, endpoints), config, "IPv4", () => {});
  const daemon = { config, podCIDRs: [], families: [{ family: "IPv4" as const }] };
  const question = { from: "node", to: clusterIPOf(services - 1), port: "80", protocol: "tcp", isVerbose: false };
  const answer = async (): Promise<void> => {
    const { outcomes } = await traceAnswer(daemon, question, async () => node);
    if (outcomes.length === 0) throw new Error(`${mode}: nothing becomes of the packet`);
  };
  const startMs = ownCpuMs();
  await answer();
  const firstMs = ownCpuMs() - startMs;
  let turnMs = 0;
  for (let index = 0; index < LATER_ASKED; index += 1) turnMs = Math.max(turnMs, await longestTurn(answer));
  return { firstMs, nextMs: (ownCpuMs() - startMs - firstMs) / LATER_ASKED, turnMs };
}

/** Nothing is text where rules are spelled when a packet meets them. */
function textLength(dump: Dump): number {
  if ("text" in dump) return dump.text.length;
  return dump.kind === "nftables" ? JSON.stringify(dump.objects).length : 0;
}

async function plannedDumps({ mode, forms }: Subject, services: number, endpoints: number): Promise<Dump[]> {
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
