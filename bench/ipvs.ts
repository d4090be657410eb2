/**
 * `npm run bench -- ipvs`: what the ipvs mode costs with a kernel in memory; and what its kernel boundary costs, next to
 * ipvsadm, ipset and ip doing the same, in one run inside the virtual machine of the tests. See docs/performance.md.
 */
import { fileURLToPath } from "node:url";
import { MACHINES, runInVm } from "../testkit/vm/run-in-vm.ts";
import type { Bench, Given, Outcome } from "./driver.ts";
import { type IpvsMemoryStep, measureInMemory } from "./ipvs-memory.ts";
import { engineOptions } from "./run-worker.ts";
import { median, ms, table } from "./table.ts";
import type { Verdict } from "./targets.ts";

const WORKER = fileURLToPath(new URL("./ipvs-vm.ts", import.meta.url));
const LIMIT_MS = 900_000;

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

/** The steps as a table. Pure. */
export function ipvsTable({ steps }: IpvsFigures): string {
  const rows = steps.map(({ what, tool, oursMs, toolMs, pausesMs }) => [
    what,
    tool,
    ms(median(oursMs)),
    ms(median(toolMs)),
    (median(oursMs) / median(toolMs)).toFixed(2),
    ms(median(pausesMs)),
  ]);
  return table(["what", "tool", "ours ms", "tool ms", "ours/tool", "longest pause ms"], rows);
}

/** Nothing may take longer over netlink than with the system's tool, the start of its process included. Pure. */
export function judgeIpvs({ steps }: IpvsFigures): Verdict[] {
  return steps.map(({ what, tool, oursMs, toolMs }) => {
    const ratio = median(oursMs) / median(toolMs);
    return { passed: ratio < 1, text: `ipvs: ${what}: ${ratio.toFixed(2)} times what ${tool} takes (under 1)` };
  });
}

/** The steps in memory as a table. Pure. */
export function memoryTable(steps: readonly IpvsMemoryStep[]): string {
  const rows = steps.map(({ what, ms: times, messages, restores }) => [
    what,
    ms(median(times)),
    ms(Math.max(...times)),
    `${messages.ipvs}`,
    `${messages.ipset}`,
    `${messages.addresses}`,
    `${restores}`,
  ]);
  return table(["what", "median ms", "longest ms", "IPVS", "sets", "addresses", "restores"], rows);
}

/** One added endpoint must cost one message, one replaced endpoint three, and neither a process. Pure. */
export function judgeMemory(steps: readonly IpvsMemoryStep[]): Verdict[] {
  const limits = new Map([
    ["one endpoint more", 1],
    // Its connections are asked for.
    ["one endpoint replaced", 3],
  ]);
  return steps.flatMap(({ what, messages, restores }) => {
    const limit = limits.get(what);
    if (limit === undefined) return [];
    const count = messages.ipvs + messages.ipset + messages.addresses;
    const text = `ipvs in memory: ${what}: ${count} messages and ${restores} processes (${limit} and 0)`;
    return [{ passed: count <= limit && restores === 0, text }];
  });
}

async function measureInMachine(task: IpvsTask): Promise<IpvsFigures> {
  const reason = MACHINES.qemu.skip();
  if (reason !== false) throw new Error(reason);
  const { status, output } = await runInVm({
    machine: "qemu",
    argv: ["node", ...engineOptions(), WORKER, JSON.stringify(task)],
    timeoutMs: LIMIT_MS,
  });
  const last = output.trimEnd().split("\n").at(-1) ?? "";
  if (status !== 0 || !last.startsWith("{")) throw new Error(`the bench in the virtual machine failed:\n${output}`);
  return JSON.parse(last);
}

async function measure(given: Given): Promise<Outcome> {
  const [endpoints, rounds, virtualServers] = [given.whole("endpoints"), given.whole("rounds"), given.whole("servers")];
  const memory = await measureInMemory({ services: given.whole("services"), endpointsEach: endpoints, rounds });
  console.log(`With a kernel in memory; messages and restores of one sync.\n${memoryTable(memory)}\n`);
  if (given.isOn("memory")) return { verdicts: judgeMemory(memory), figures: { memory } };
  const setEntries = given.whole("entries");
  const task = { virtualServers, realServersEach: endpoints, setEntries, addresses: virtualServers, rounds };
  const figures = await measureInMachine(task);
  console.log(`${figures.machine}\n\nMilliseconds by the clock, medians.\n${ipvsTable(figures)}\n`);
  return { verdicts: [...judgeMemory(memory), ...judgeIpvs(figures)], figures: { memory, figures } };
}

export interface IpvsTask {
  readonly virtualServers: number;
  readonly realServersEach: number;
  readonly setEntries: number;
  readonly addresses: number;
  /** Every step is done so often by either side, in turns. */
  readonly rounds: number;
}

/** One step, done by this project and by a tool of the system. */
export interface IpvsStep {
  readonly what: string;
  readonly tool: string;
  /** Milliseconds by the clock, one for each round. */
  readonly oursMs: readonly number[];
  readonly toolMs: readonly number[];
  /** The longest that the event loop stood still in each of our rounds, milliseconds. */
  readonly pausesMs: readonly number[];
}

export interface IpvsFigures {
  /** Kernel and tools. */
  readonly machine: string;
  readonly steps: readonly IpvsStep[];
}
