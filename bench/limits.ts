/**
 * `npm run bench -- limits`: states beyond what clusters have, in both layouts of the nftables mode: one Service with very many endpoints,
 * one with very many ports, very many Services. What each takes, and what does not end in time.
 */
import { writeSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { LAYOUT_NAMES, type LayoutName } from "../src/dataplane/nftables/layout-name.ts";
import { benchService, benchSlice } from "./cluster.ts";
import { type Bench, workerFigures } from "./driver.ts";
import { memoryNow } from "./memory.ts";
import { NftSubject } from "./nftables-subject.ts";
import { ms, table } from "./table.ts";

/** By name: Services, endpoints of each, ports of each. */
const STATES = {
  endpoints: { services: 1, endpointsEach: 120_000, ports: 1 },
  ports: { services: 1, endpointsEach: 3, ports: 1_000 },
  services: { services: 100_000, endpointsEach: 5, ports: 1 },
} as const;
const STATE_NAMES = ["endpoints", "ports", "services"] as const;

interface LimitTask {
  readonly layout: LayoutName;
  readonly services: number;
  readonly endpointsEach: number;
  readonly ports: number;
  readonly limitMs: number;
}

/** Processor time, milliseconds; those that had not ended in time are missing. */
interface LimitFigures {
  readonly task: LimitTask;
  readonly loadMs?: number;
  readonly changeMs?: number;
  readonly restartMs?: number;
  readonly peakMb: number;
}

export const bench: Bench = {
  name: "limits",
  about: `States beyond what clusters have, in both layouts of the nftables mode, in throw-away network namespaces: processor time and memory.
Needs root.`,
  options: {
    quick: { help: "a hundredth of it" },
    states: { value: "NAME,…", initial: STATE_NAMES.join(","), help: "which" },
    layouts: { value: "NAME,…", initial: LAYOUT_NAMES.join(","), help: "which" },
    limit: { value: "SECONDS", initial: "300", help: "for each" },
  },
  async run(given) {
    const results: LimitFigures[] = [];
    const part = given.isOn("quick") ? 100 : 1;
    for (const name of given.list("states")) {
      const { services, endpointsEach, ports } = STATES[given.oneOf("states", STATE_NAMES, name)];
      const least = (value: number): number => (value < part ? value : value / part);
      const state = { services: least(services), endpointsEach: least(endpointsEach), ports: least(ports) };
      for (const word of given.list("layouts")) {
        const task: LimitTask = {
          ...state,
          layout: given.oneOf("layouts", LAYOUT_NAMES, word),
          limitMs: 1000 * given.whole("limit"),
        };
        process.stderr.write(`measuring ${titleOf(task)}…\n`);
        results.push(await workerFigures({ script: fileURLToPath(import.meta.url), task }));
      }
    }
    console.log(limitsTable(results));
    return { figures: { results } };
  },
};

function titleOf({ services, endpointsEach, ports, layout }: LimitTask): string {
  return `${services} × ${endpointsEach}${ports === 1 ? "" : `, ${ports} ports`}, ${layout}`;
}

export function limitsTable(results: readonly LimitFigures[]): string {
  const rows = results.map(({ task, loadMs, changeMs, restartMs, peakMb }) => {
    const cell = (value: number | undefined) => (value === undefined ? `not in ${task.limitMs / 1000} s` : ms(value));
    return [titleOf(task), cell(loadMs), cell(changeMs), cell(restartMs), peakMb.toFixed(0)];
  });
  const head = ["processor time, ms", "load", "an endpoint replaced", "restart, all compared", "peak MB"];
  return table(head, rows);
}

async function cpuOf(work: () => Promise<void>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

async function measure(task: LimitTask): Promise<void> {
  const figures: { -readonly [K in keyof LimitFigures]: LimitFigures[K] } = { task, peakMb: 0 };
  const report = (): void => void writeSync(1, `${JSON.stringify({ ...figures, peakMb: memoryNow().peakMb })}\n`);
  // What the kernel is at goes on in a thread, or holds this one up: then it is said afterwards.
  const timer = setTimeout(() => {
    report();
    process.exit();
  }, task.limitMs);
  const { services, endpointsEach, ports, layout } = task;
  const subject = new NftSubject(endpointsEach, layout);
  subject.isNoting = false;
  if (ports === 1) subject.load(services);
  else addWithPorts(subject, endpointsEach, ports);
  figures.loadMs = await cpuOf(() => subject.fullSync(false));
  figures.changeMs = await cpuOf(() => {
    if (ports === 1) subject.replaceEndpoint(0);
    else subject.state.onEndpointSlice(changedSlice(endpointsEach, ports));
    return subject.syncChanges();
  });
  figures.restartMs = await cpuOf(() => subject.fullSync(true));
  clearTimeout(timer);
  report();
  await subject.close();
}

function portsOf(count: number) {
  const numbers = Array.from({ length: count }, (_, at) => at + 1);
  return numbers.map((port) => ({ name: `port-${port}`, protocol: "TCP" as const, port, nodePort: 0 }));
}

function sliceWith(endpointsEach: number, ports: number, generation: number) {
  const named = portsOf(ports).map(({ name, protocol, port }) => ({ name, protocol, port: 8000 + port }));
  return { ...benchSlice(0, endpointsEach, generation), ports: named };
}

function addWithPorts({ state }: NftSubject, endpointsEach: number, ports: number): void {
  state.onService({ kind: "add", object: { ...benchService(0), ports: portsOf(ports) } });
  state.onEndpointSlice({ kind: "add", object: sliceWith(endpointsEach, ports, 0) });
  state.applyChanges();
}

function changedSlice(endpointsEach: number, ports: number) {
  const [old, object] = [sliceWith(endpointsEach, ports, 0), sliceWith(endpointsEach, ports, 1)];
  return { kind: "update", old, object } as const;
}

if (import.meta.main) await measure(JSON.parse(process.argv[2] ?? "{}"));
