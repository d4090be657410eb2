/**
 * `npm run bench -- ipvs`: the cost of the ipvs mode with a kernel in memory; and that of its kernel boundary, next to
 * ipvsadm, ipset and ip doing the same, in one run inside the tests' virtual machine. See docs/performance.md.
 */
import { fileURLToPath } from "node:url";
import { BackendRig } from "../src/modes/ipvs/testing/backend-rig.ts";
import { MemoryNode } from "../src/modes/ipvs/testing/memory-node.ts";
import { SyncDriver } from "../testkit/dataplane/sync-driver.ts";
import { MACHINES, runInVm } from "../testkit/vm/run-in-vm.ts";
import { benchSlice } from "./cluster.ts";
import type { Bench, Given, Outcome } from "./driver.ts";
import { Subject } from "./subject.ts";
import { median, ms, table, timed, type Verdict } from "./table.ts";
import { engineOptions } from "./workers.ts";

const WORKER = fileURLToPath(new URL("./ipvs-vm.ts", import.meta.url));
const LIMIT_MS = 900_000;
const AT_ONCE = 100;

export interface IpvsTask {
  readonly virtualServers: number;
  readonly realServersEach: number;
  readonly setEntries: number;
  readonly addresses: number;
  /** How often each side does every step, in turns. */
  readonly rounds: number;
}

/** One step, done by this project and by a system tool. Elapsed milliseconds, one value per round. */
export interface IpvsStep {
  readonly what: string;
  readonly tool: string;
  readonly oursMs: readonly number[];
  readonly toolMs: readonly number[];
}

export interface IpvsFigures {
  /** Kernel and tools. */
  readonly machine: string;
  readonly steps: readonly IpvsStep[];
}

/** One kind of sync with a kernel in memory, whose time is included. */
interface MemoryStep {
  readonly what: string;
  readonly ms: readonly number[];
  /** Netlink messages of the last round, by purpose, including requests for data. */
  readonly messages: { readonly ipvs: number; readonly ipset: number; readonly addresses: number };
  /** Restores of the last round. */
  readonly restores: number;
}

export const bench: Bench = {
  name: "ipvs",
  about: `Measures planning and the number of messages with a kernel in memory; then IPVS, IP sets and addresses over netlink against
ipvsadm, ipset and ip, in a virtual machine. That needs root, qemu and, once, 28 MB of Debian packages. The machine is
emulated: take ratios rather than figures.`,
  needsRoot: false,
  options: {
    quick: { help: "few and small" },
    memory: { help: "without the virtual machine" },
    services: { value: "N", initial: "10000", quick: "500", help: "in memory" },
    servers: { value: "N", initial: "2000", quick: "200", help: "virtual servers, and addresses" },
    endpoints: { value: "N", initial: "5", help: "real servers of each" },
    entries: { value: "N", initial: "10000", quick: "1000", help: "of the set" },
    rounds: { value: "N", initial: "5", quick: "3", help: "of each side, in turns" },
  },
  run: measure,
};

async function measure(given: Given): Promise<Outcome> {
  const [endpoints, rounds, virtualServers] = [given.whole("endpoints"), given.whole("rounds"), given.whole("servers")];
  const memory = await measureInMemory(given.whole("services"), endpoints, rounds);
  console.log(`With a kernel in memory; messages and restores of one sync.\n${memoryTable(memory)}\n`);
  if (given.isOn("memory")) return { verdicts: judgeMemory(memory), figures: { memory } };
  const setEntries = given.whole("entries");
  const task = { virtualServers, realServersEach: endpoints, setEntries, addresses: virtualServers, rounds };
  const figures = await measureInMachine(task);
  console.log(`${figures.machine}\n\nMilliseconds by the clock, medians.\n${ipvsTable(figures)}\n`);
  return { verdicts: [...judgeMemory(memory), ...judgeIpvs(figures)], figures: { memory, figures } };
}

const ratioOf = ({ oursMs, toolMs }: IpvsStep): number => median(oursMs) / median(toolMs);

export function ipvsTable({ steps }: IpvsFigures): string {
  const rows = steps.map((step) => {
    const { what, tool, oursMs, toolMs } = step;
    return [what, tool, ms(median(oursMs)), ms(median(toolMs)), ratioOf(step).toFixed(2)];
  });
  return table(["what", "tool", "ours ms", "tool ms", "ours/tool"], rows);
}

/** Nothing may take longer over netlink than with the system's tool, including the start of its process. */
export function judgeIpvs({ steps }: IpvsFigures): readonly Verdict[] {
  return steps.map((step) => {
    const ratio = ratioOf(step);
    const text = `ipvs: ${step.what}: ${ratio.toFixed(2)} times what ${step.tool} takes (under 1)`;
    return { passed: ratio < 1, text };
  });
}

export function memoryTable(steps: readonly MemoryStep[]): string {
  const rows = steps.map(({ what, ms: times, messages: { ipvs, ipset, addresses }, restores }) => {
    return [what, ...[median(times), Math.max(...times)].map(ms), ...[ipvs, ipset, addresses, restores].map(String)];
  });
  return table(["what", "median ms", "longest ms", "IPVS", "sets", "addresses", "restores"], rows);
}

/** Adding an endpoint must cost one message, replacing one three (its connections are queried), and neither a process. */
export function judgeMemory(steps: readonly MemoryStep[]): readonly Verdict[] {
  const limits: Readonly<Record<string, number>> = { "one endpoint more": 1, "one endpoint replaced": 3 };
  return steps.flatMap(({ what, messages, restores }) => {
    const limit = limits[what];
    if (limit === undefined) return [];
    const count = messages.ipvs + messages.ipset + messages.addresses;
    const text = `ipvs in memory: ${what}: ${count} messages and ${restores} processes (${limit} and 0)`;
    return [{ passed: count <= limit && restores === 0, text }];
  });
}

/** Empty: the bench drives the backend. */
const driver = new SyncDriver({ services: new Map(), endpoints: new Map() });

/** Every kind of sync. */
export async function measureInMemory(services: number, each: number, rounds: number): Promise<readonly MemoryStep[]> {
  const start = () => {
    const node = new MemoryNode("IPv4");
    const subject = new Subject(each, () => new BackendRig(driver, { node }).backend);
    subject.load(services);
    return { node, subject };
  };
  const steps: MemoryStep[] = [];
  let { node, subject } = start();
  const step = async (what: string, times: number, change: (round: number) => void, isFull = false): Promise<void> => {
    const samples: number[] = [];
    let costs = node.takeCosts();
    for (let round = 0; round < times; round += 1) {
      change(round);
      node.takeCosts();
      samples.push(await timed(() => (isFull ? subject.fullSync() : subject.syncChanges())));
      costs = node.takeCosts();
    }
    const { ipvs, ipset, links, restores } = costs;
    steps.push({ what, ms: samples, messages: { ipvs, ipset, addresses: links }, restores });
  };
  const size = `${services} × ${each}`;
  const again = () => {
    ({ node, subject } = start());
  };
  await step(`${size}: first sync, into an empty kernel`, rounds, again, true);
  await step(`${size}: first sync after a restart, nothing changed`, rounds, () => subject.restart(), true);
  await step("one endpoint replaced", rounds * 20, (round) => subject.replaceEndpoint((round * 7) % services));
  await step("one endpoint more", rounds * 20, (round) => {
    const index = services - 1 - ((round * 7) % services);
    const old = subject.sliceOf(index);
    subject.setSlice(index, { ...old, endpoints: [...old.endpoints, ...benchSlice(index, 1, 1).endpoints] });
  });
  await step("one service more, with its endpoints", rounds * 20, (round) => {
    subject.setService(services + round, "add");
  });
  await step(`${AT_ONCE} endpoints replaced at once`, rounds, () => {
    for (let index = 0; index < Math.min(AT_ONCE, services); index += 1) subject.replaceEndpoint(index);
  });
  return steps;
}

async function measureInMachine(task: IpvsTask): Promise<IpvsFigures> {
  const reason = MACHINES.qemu.skip();
  if (reason !== false) throw new Error(reason);
  const argv = ["node", ...engineOptions(), WORKER, JSON.stringify(task)];
  const { status, output } = await runInVm({ machine: "qemu", argv, timeoutMs: LIMIT_MS });
  const last = output.trimEnd().split("\n").at(-1) ?? "";
  if (status !== 0 || !last.startsWith("{")) throw new Error(`the bench in the virtual machine failed:\n${output}`);
  return JSON.parse(last);
}
