/**
 * `npm run bench -- limits`: states beyond what clusters have, in every mode: one Service with very many endpoints, one with very many
 * ports, very many Services. What each takes, and what does not end in time.
 */
import { writeSync } from "node:fs";
import { BENCH_MODES, type BenchMode, openMode } from "./backends.ts";
import { benchService, benchSlice } from "./cluster.ts";
import type { Bench } from "./driver.ts";
import { memoryNow, ownCpuMs, toolsCpuMs } from "./memory.ts";
import { Subject } from "./subject.ts";
import { ms, table } from "./table.ts";
import { inWorker } from "./workers.ts";

/** By name: Services, endpoints of each, ports of each. */
const STATES = {
  endpoints: { services: 1, endpointsEach: 120_000, ports: 1 },
  ports: { services: 1, endpointsEach: 3, ports: 1_000 },
  services: { services: 100_000, endpointsEach: 5, ports: 1 },
} as const;
const STATE_NAMES = ["endpoints", "ports", "services"] as const;

interface LimitTask {
  readonly mode: BenchMode;
  readonly services: number;
  readonly endpointsEach: number;
  readonly ports: number;
  readonly limitMs: number;
}

/** Processor time with that of tools, milliseconds; those that had not ended in time are missing. */
interface LimitFigures {
  readonly task: LimitTask;
  readonly loadMs?: number;
  readonly changeMs?: number;
  readonly restartMs?: number;
  /** Parts of the first load that were refused. @default none */
  readonly refused?: number;
  readonly peakMb: number;
}

export const bench: Bench = {
  name: "limits",
  about: `States beyond what clusters have, in every mode, in throw-away network namespaces: processor time and memory. Needs root.
The kernel of ipvs, the sockets of userspace and the HNS of kernelspace are in memory, and part of both.`,
  options: {
    quick: { help: "a hundredth of it" },
    states: { value: "NAME,…", initial: STATE_NAMES.join(","), help: "which" },
    modes: { value: "NAME,…", initial: BENCH_MODES.join(","), help: "which, of nftables the layout" },
    limit: { value: "SECONDS", initial: "300", help: "for each" },
  },
  async run(given) {
    const results: LimitFigures[] = [];
    const part = given.isOn("quick") ? 100 : 1;
    for (const name of given.someOf("states", STATE_NAMES)) {
      const { services, endpointsEach, ports } = STATES[name];
      const least = (value: number): number => (value < part ? value : value / part);
      const state = { services: least(services), endpointsEach: least(endpointsEach), ports: least(ports) };
      for (const mode of given.someOf("modes", BENCH_MODES)) {
        const task: LimitTask = { ...state, mode, limitMs: 1000 * given.whole("limit") };
        process.stderr.write(`measuring ${titleOf(task)}…\n`);
        const result: LimitFigures = await inWorker("limits", task);
        process.stderr.write(`${limitsTable([result]).split("\n").at(-1)}\n`);
        results.push(result);
      }
    }
    console.log(limitsTable(results));
    return { figures: { results } };
  },
  worker: measure,
};

function titleOf({ services, endpointsEach, ports, mode }: LimitTask): string {
  return `${services} × ${endpointsEach}${ports === 1 ? "" : `, ${ports} ports`}, ${mode}`;
}

export function limitsTable(results: readonly LimitFigures[]): string {
  const rows = results.map(({ task, loadMs, changeMs, restartMs, refused = 0, peakMb }) => {
    const cell = (value: number | undefined) => (value === undefined ? `not in ${task.limitMs / 1000} s` : ms(value));
    return [titleOf(task), cell(loadMs), cell(changeMs), cell(restartMs), String(refused), peakMb.toFixed(0)];
  });
  const head = ["processor time, ms", "load", "an endpoint replaced", "restart, all compared", "refused", "peak MB"];
  return table(head, rows);
}

async function cpuOf(work: () => Promise<unknown>): Promise<number> {
  const before = ownCpuMs() + toolsCpuMs();
  await work();
  return ownCpuMs() + toolsCpuMs() - before;
}

async function measure(task: LimitTask): Promise<LimitFigures> {
  const figures: { -readonly [K in keyof LimitFigures]: LimitFigures[K] } = { task, peakMb: 0 };
  // What the kernel is at goes on in a thread, or holds this one up: then it is said afterwards.
  const timer = setTimeout(() => {
    writeSync(1, `${JSON.stringify({ ...figures, peakMb: memoryNow().peakMb })}\n`);
    process.exit();
  }, task.limitMs);
  const subject = new Subject(task.endpointsEach, await openMode(task.mode));
  const { state } = subject;
  for (let index = 0; index < task.services; index += 1) {
    const service = task.ports === 1 ? benchService(index) : { ...benchService(index), ports: portsOf(task.ports) };
    state.onService({ kind: "add", object: service });
    state.onEndpointSlice({ kind: "add", object: sliceOf(task, index) });
  }
  state.applyChanges();
  figures.loadMs = await cpuOf(async () => {
    figures.refused = (await subject.failuresOf(true, new Set())).length;
  });
  figures.changeMs = await cpuOf(() => {
    const [old, object] = [sliceOf(task, 0), sliceOf(task, 0, 1)];
    state.onEndpointSlice({ kind: "update", old, object });
    return subject.failuresOf(false, state.applyChanges().changedPorts);
  });
  subject.restart();
  figures.restartMs = await cpuOf(() => subject.failuresOf(true, new Set()));
  clearTimeout(timer);
  return { ...figures, peakMb: memoryNow().peakMb };
}

function portsOf(count: number) {
  const numbers = Array.from({ length: count }, (_, at) => at + 1);
  return numbers.map((port) => ({ name: `port-${port}`, protocol: "TCP" as const, port, nodePort: 0 }));
}

function sliceOf({ endpointsEach, ports }: LimitTask, index: number, generation = 0) {
  const slice = benchSlice(index, endpointsEach, generation);
  if (ports === 1) return slice;
  const named = portsOf(ports).map(({ name, protocol, port }) => ({ name, protocol, port: 8000 + port }));
  return { ...slice, ports: named };
}
