/**
 * `npm run bench -- limits`: states beyond those of real clusters, in every mode: one Service with very many endpoints,
 * one with very many ports, very many Services. What each costs, and what does not end in time.
 */
import { writeSync } from "node:fs";
import { BENCH_MODES, type BenchMode, openMode } from "./backends.ts";
import { benchService, benchSlice } from "./cluster.ts";
import type { Bench } from "./driver.ts";
import { memoryNow, ownCpuMs, toolsCpuMs } from "./memory.ts";
import { Subject } from "./subject.ts";
import { type Figures, Notes } from "./table.ts";

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

/** The steps measured for each. */
const STEPS = ["load", "an endpoint replaced", "restart, all compared"] as const;

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
  tasks(given) {
    const part = given.isOn("quick") ? 100 : 1;
    const least = (value: number): number => (value < part ? value : value / part);
    const all = given.someOf("states", STATE_NAMES).flatMap((name) =>
      given.someOf("modes", BENCH_MODES).map((mode) => {
        const { services, endpointsEach, ports } = STATES[name];
        const state = { services: least(services), endpointsEach: least(endpointsEach), ports: least(ports) };
        const task: LimitTask = { ...state, mode, limitMs: 1000 * given.whole("limit") };
        const size = `${state.services} × ${state.endpointsEach}${state.ports === 1 ? "" : `, ${state.ports} ports`}`;
        return [`${size}, ${mode}`, [task]] as const;
      }),
    );
    return Object.fromEntries(all);
  },
  worker: measure,
};

/** Adds what had not ended in time, and the memory. */
export function ended(notes: Notes, limitMs: number, refused: number): Figures {
  for (const step of STEPS) if (!(step in notes.figures)) notes.add(step, `not in ${limitMs / 1000} s`);
  notes.add("refused", refused);
  notes.add("peak MB", Math.round(memoryNow().peakMb));
  return notes.figures;
}

async function cpuOf(work: () => Promise<unknown>): Promise<number> {
  const before = ownCpuMs() + toolsCpuMs();
  await work();
  return ownCpuMs() + toolsCpuMs() - before;
}

/** Processor time includes that of tools. */
async function measure(task: LimitTask): Promise<Figures> {
  const notes = new Notes();
  let refused = 0;
  // The kernel's work continues in a thread, or blocks this one: then it is reported afterwards.
  const timer = setTimeout(() => {
    writeSync(1, `${JSON.stringify(ended(notes, task.limitMs, refused))}\n`);
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
  const [load, change, restart] = STEPS;
  const loadMs = await cpuOf(async () => {
    refused = (await subject.failuresOf(true, new Set())).length;
  });
  notes.add(load, loadMs);
  const changeMs = await cpuOf(() => {
    const [old, object] = [sliceOf(task, 0), sliceOf(task, 0, 1)];
    state.onEndpointSlice({ kind: "update", old, object });
    return subject.failuresOf(false, state.applyChanges().changedPorts);
  });
  notes.add(change, changeMs);
  subject.restart();
  notes.add(restart, await cpuOf(() => subject.failuresOf(true, new Set())));
  clearTimeout(timer);
  return ended(notes, task.limitMs, refused);
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
