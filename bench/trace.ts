/**
 * `npm run bench -- trace`: what `kube-proxy trace` takes beyond loading, by size and mode; and how fast what iptables-save prints is
 * read. Processor time of the main thread, so that a busy machine counts little. Needs no root.
 */
import { rulesForObjects } from "../src/cli/trace-rules.ts";
import { modeNamed, type ProxyMode } from "../src/dataplane/registry.ts";
import { offlineNode } from "../src/inspect/offline-node.ts";
import { checkedSettings } from "../src/lib/plan-settings.ts";
import type { IpAddress } from "../src/net/ip.ts";
import { deviceAddresses } from "../src/trace/dump/device-addresses.ts";
import { dumpsOf } from "../src/trace/dump/of-rendered.ts";
import { programOfDumps } from "../src/trace/dump/program.ts";
import type { Dump } from "../src/trace/dump/recognise.ts";
import { nodeFacts } from "../src/trace/facts.ts";
import { walk } from "../src/trace/netfilter/walk.ts";
import { newPacket } from "../src/trace/packet.ts";
import { traceText } from "../src/trace/report/text.ts";
import { benchObjects, benchService } from "./cluster.ts";
import type { Bench, Outcome } from "./driver.ts";
import { ownCpuMs } from "./memory.ts";
import { type PageTrace, pageTrace } from "./page-trace.ts";
import { ms, size, table } from "./table.ts";

const NODE = "10.64.0.1" as IpAddress; // canonical, as is the next
const CLIENT = "10.64.0.9" as IpAddress;
/** Wanted at 10,000 services, beyond loading. */
const TRACE_MS = 300;
/** Wanted of a daemon at 10,000 services: how long it does nothing else at a stretch. */
const TURN_MS = 20;
/** Wanted for 30 MB of iptables-save. */
const READ_MS = 2_000;
const READ_BYTES = 30_000_000;
/** Packets after the first. */
const LATER = 100;
const SCATTER = 7919;
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

const PAGE_MODES: readonly ProxyMode[] = ["nftables", "iptables", "ipvs", "userspace"];

export const bench: Bench = {
  name: "trace",
  about: "What kube-proxy trace takes, processor time.",
  needsRoot: false,
  options: {
    sizes: { value: "N,…", initial: "1000,10000", help: "services" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each" },
  },
  run: (given) => measureAll(given.wholes("sizes"), given.whole("endpoints")),
};

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
}

async function measureAll(sizes: readonly number[], endpoints: number): Promise<Outcome> {
  const results: Figures[] = [];
  for (const services of sizes) {
    for (const subject of SUBJECTS) results.push(await measure(subject, services, endpoints));
  }
  console.log(
    table(
      ["", "trace -f, ms", "text", "read, ms", "first packet, ms", "each after it, ms"],
      results.map(({ name, services, bytes, readMs, firstMs, nextMs, commandMs }) => {
        const command = commandMs === undefined ? "-" : ms(commandMs);
        return [`${name}, ${services} services`, command, size(bytes), ms(readMs), ms(firstMs), ms(nextMs)];
      }),
    ),
  );
  const pages: PageTrace[] = [];
  for (const services of sizes) {
    for (const mode of PAGE_MODES) pages.push(await pageTrace(mode, services, endpoints));
  }
  console.log(
    table(
      ["the page of a daemon", "first, ms", "each after it, ms", "longest turn, ms"],
      pages.map(({ mode, services, firstMs, nextMs, turnMs }) => {
        return [`${mode}, ${services} services`, ms(firstMs), ms(nextMs), ms(turnMs)];
      }),
    ),
  );
  return { verdicts: [...results.flatMap(judge), ...pages.flatMap(judgePage)], figures: { results, pages } };
}

async function measure(subject: Subject, services: number, endpoints: number): Promise<Figures> {
  const { name } = subject;
  // First: the code is as cold as in a command.
  const commandMs = subject.forms === undefined ? await command(subject, services, endpoints) : undefined;
  const dumps = await plannedDumps(subject, services, endpoints);
  const facts = nodeFacts({ addresses: [NODE, ...deviceAddresses(dumps)] });
  const reading = timed(() =>
    programOfDumps(dumps, { family: "IPv4", facts, knowsClients: false, knowsDynamicSets: false }),
  );
  const { program } = reading.result;
  const ask = (index: number) => {
    const { clusterIP } = benchService(index);
    const destination = clusterIP as IpAddress; // a canonical address
    const ends = { source: CLIENT, sourcePort: 40_000, destination, destinationPort: 80 };
    const packet = newPacket({ family: "IPv4", protocol: "tcp", inInterface: "eth0", ...ends });
    return traceText({ packet, rules: "", notes: [], root: walk(program, packet, facts) });
  };
  const first = timed(() => ask(services - 1));
  const next = timed(() => {
    for (let index = 0; index < LATER; index += 1) ask((index * SCATTER) % services);
  });
  if (!first.result.includes("→")) throw new Error(`${name}: no rule matched`);
  const bytes = dumps.reduce((sum, dump) => sum + textLength(dump), 0);
  return { name, services, bytes, readMs: reading.cpuMs, firstMs: first.cpuMs, nextMs: next.cpuMs / LATER, commandMs };
}

/** From objects to the text of one packet's way, as the command does it. */
async function command({ mode }: Subject, services: number, endpoints: number): Promise<number> {
  const objects = benchObjects(services, endpoints);
  const { config } = await checkedSettings({ config: { mode, clusterCIDR: "10.128.0.0/9" }, node: "node-a" });
  await modeNamed(mode).loadRenderer();
  const destination = benchService(services - 1).clusterIP as IpAddress; // a canonical address
  const before = ownCpuMs();
  const target = { family: "IPv4", address: destination, port: 80, protocol: "tcp" } as const;
  const rules = await rulesForObjects({ ...objects, problems: [] }, config, target, () => {});
  const facts = nodeFacts({ addresses: [...rules.addresses, ...deviceAddresses(rules.dumps)] });
  const choices = { family: "IPv4", facts, knowsClients: false, knowsDynamicSets: false } as const;
  const { program } = programOfDumps(rules.dumps, choices);
  const ends = { source: CLIENT, sourcePort: 40_000, destination, destinationPort: 80 };
  const packet = newPacket({ family: "IPv4", protocol: "tcp", inInterface: "eth0", ...ends });
  const text = traceText({ packet, rules: rules.name, notes: rules.notes, root: walk(program, packet, facts) });
  if (!/sent to|delivered/.test(text)) throw new Error(`${mode}: the packet is not sent on`);
  return ownCpuMs() - before;
}

/** Nothing is text where rules are spelled when a packet meets them. */
function textLength(dump: Dump): number {
  if ("text" in dump) return dump.text.length;
  return dump.kind === "nftables" ? JSON.stringify(dump.objects).length : 0;
}

async function plannedDumps({ mode, forms }: Subject, services: number, endpoints: number): Promise<Dump[]> {
  const { config } = await checkedSettings({ config: { mode, clusterCIDR: "10.128.0.0/9" }, node: "node-a" });
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

function judge({
  name,
  services,
  bytes,
  readMs,
  firstMs,
  commandMs,
}: Figures): { readonly passed: boolean; readonly text: string }[] {
  const verdicts = [];
  if (services <= 10_000) {
    const allMs = commandMs ?? firstMs;
    const text = `${name}, ${services} services: a packet in ${ms(allMs)} ms, ${TRACE_MS} ms wanted`;
    verdicts.push({ passed: allMs <= TRACE_MS, text });
  }
  if (name === "iptables-save" && bytes > 1_000_000) {
    const perTarget = (readMs / bytes) * READ_BYTES;
    const text = `iptables-save is read in ${ms(perTarget)} ms per 30 MB, ${READ_MS} ms wanted`;
    verdicts.push({ passed: perTarget <= READ_MS, text });
  }
  return verdicts;
}

function judgePage({ mode, services, firstMs, turnMs }: PageTrace) {
  if (services > 10_000) return [];
  const name = `page, ${mode}, ${services} services`;
  return [
    { passed: firstMs <= TRACE_MS, text: `${name}: an answer in ${ms(firstMs)} ms, ${TRACE_MS} ms wanted` },
    { passed: turnMs <= TURN_MS, text: `${name}: ${ms(turnMs)} ms at a stretch, ${TURN_MS} ms wanted` },
  ];
}
