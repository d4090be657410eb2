/** `npm run bench`: what the iptables mode costs, next to `iptables-restore` with the same text in the same run. */
import { execFileSync } from "node:child_process";
import { availableParallelism, loadavg, release } from "node:os";
import { binariesOf } from "../src/kernel/iptables/testing/binaries.ts";
import { BACK_ENDS, type BackEnd } from "./backends.ts";
import type { Bench, Given } from "./driver.ts";
import { atMost, figuresTable, fixed, median, megabytes, ms, type Row, size, type Verdict } from "./table.ts";
import { engineOptions, inWorker } from "./workers.ts";

/** Planning a one-endpoint change may cost this many times what it costs in the cheapest other size. */
const PLANNING_GROWTH = 1.5;
/** Of the time of iptables-restore alone; processor time, so that a busy machine decides nothing. */
const OWN_WORK_PART = 0.25;
/**
 * Judged from this many services on. Below, a first sync is mostly what does not grow: starting the other tools and an
 * engine that has not compiled anything yet, next to an iptables-restore of a few dozen milliseconds.
 */
const OWN_WORK_FROM = 5000;

export interface IptablesTask {
  readonly backEnd: BackEnd;
  readonly services: number;
  readonly endpointsEach: number;
  /** Repetitions of each small change with the real tool, and of planning without. */
  readonly changes: number;
  readonly plannings: number;
  /** For every step. */
  readonly limitMs: number;
}

export type ChangeKind = "endpoint replaced" | "service added" | "service removed";

/** Milliseconds, medians. */
interface SmallChange {
  readonly restoreMs: number | undefined;
  /** Of the text that kube-proxy sends; of replaced endpoints only. */
  readonly upstreamMs: number | undefined;
  /** Everything but iptables-restore. */
  readonly ownMs: number | undefined;
  readonly bytes: number | undefined;
}

export interface IptablesFigures {
  /** The first sync. Processor time of our main thread and of tools other than iptables-restore; that one's life. */
  readonly full?: { readonly ownCpuMs: number; readonly otherCpuMs: number; readonly restoreMs: number };
  readonly textBytes?: number;
  /** The same text given to iptables-restore alone. */
  readonly alone?: { readonly ms: number; readonly cpuMs: number };
  readonly changes?: Partial<Record<ChangeKind, SmallChange>>;
  /** A process more over the same rules, by the clock. */
  readonly restartMs?: number;
  /** One-endpoint changes without a tool. */
  readonly planningMs?: number;
  readonly modelMb: number;
  readonly peakMb?: number;
  readonly settledMb?: number;
  /** What took longer than its limit, with its tool. Then nothing more is done with tools. */
  readonly cutOff: readonly string[];
}

export interface SizeResult {
  readonly backEnd: BackEnd;
  readonly services: number;
  /** The first is of the whole work, the others are of first syncs alone. */
  readonly runs: readonly IptablesFigures[];
}

export const bench: Bench = {
  name: "",
  about: `Measures the iptables mode against the iptables-restore of this machine, in throw-away network namespaces. Needs root.
With a name first, another bench: npm run bench -- NAME --help.`,
  options: {
    quick: { help: "few repetitions; under half a minute" },
    sizes: { value: "N,…", initial: "100,1000,5000,10000", quick: "100,1000", help: "services" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each service" },
    "back-ends": { value: "LIST", initial: BACK_ENDS.join(","), help: "of the tools" },
    limit: { value: "SECONDS", initial: "60", quick: "10", help: "for every step; what is cut off is printed" },
  },
  async run(given) {
    const machine = machineText();
    console.log(machine);
    const results: SizeResult[] = [];
    for (const backEnd of given.someOf("back-ends", BACK_ENDS)) {
      const own: SizeResult[] = [];
      for (const services of given.wholes("sizes")) own.push(await measureSize(given, backEnd, services));
      console.log(`\n${iptablesTable(backEnd, own)}`);
      results.push(...own);
    }
    return { verdicts: judgeIptables(results), figures: { machine, results } };
  },
  async worker(task: IptablesTask) {
    const { measureIptables } = await import("./iptables-worker.ts");
    return await measureIptables(task);
  },
};

async function measureSize(given: Given, backEnd: BackEnd, services: number): Promise<SizeResult> {
  const endpointsEach = given.whole("endpoints");
  const repeats = given.isOn("quick") ? { changes: 3, plannings: 200 } : { changes: 15, plannings: 1000 };
  const task: IptablesTask = { backEnd, services, endpointsEach, ...repeats, limitMs: 1000 * given.whole("limit") };
  process.stderr.write(`measuring ${services} services × ${endpointsEach} endpoints with ${backEnd}…\n`);
  const runs: IptablesFigures[] = [await inWorker("", task)];
  // Each in a process of its own: a first sync is of code that has not been compiled.
  for (let more = given.isOn("quick") ? 2 : 4; more > 0 && runs[0]?.cutOff.length === 0; more -= 1) {
    runs.push(await inWorker("", { ...task, changes: 0, plannings: 0 }));
  }
  return { backEnd, services, runs };
}

/** What the figures depend on besides the program. */
function machineText(): string {
  const versions = BACK_ENDS.map((backEnd) => {
    return execFileSync(binariesOf("IPv4", backEnd).rule, ["--version"], { encoding: "utf8" }).trim();
  });
  const machine = `${availableParallelism()} processors, load ${loadavg()[0]?.toFixed(1)}`;
  return [`Node.js ${process.version} ${engineOptions().join(" ")}`, `kernel ${release()}`, ...versions, machine].join(
    ", ",
  );
}

/** The middle of all runs that have it. */
function middle({ runs }: SizeResult, of: (figures: IptablesFigures) => number | undefined): number | undefined {
  const values = runs.flatMap((run) => of(run) ?? []);
  return values.length === 0 ? undefined : median(values);
}

const ownCpuOf = (result: SizeResult) => middle(result, ({ full }) => full && full.ownCpuMs + full.otherCpuMs);
const aloneCpuOf = (result: SizeResult) => middle(result, ({ alone }) => alone?.cpuMs);

const changeRows = (kind: ChangeKind): readonly Row<SizeResult>[] => {
  const of = (figure: keyof SmallChange) => (result: SizeResult) => result.runs[0]?.changes?.[kind]?.[figure];
  return [
    [`${kind}: iptables-restore`, of("restoreMs")],
    ...(kind === "endpoint replaced"
      ? ([["  the text that kube-proxy sends", of("upstreamMs")]] satisfies Row<SizeResult>[])
      : []),
    ["  everything but that", of("ownMs")],
    ["  sent", of("bytes"), size],
  ];
};

const ROWS: readonly Row<SizeResult>[] = [
  ["first sync: own processor time", (result) => middle(result, ({ full }) => full?.ownCpuMs)],
  ["  of other tools", (result) => middle(result, ({ full }) => full?.otherCpuMs)],
  ["  iptables-restore, by the clock", (result) => middle(result, ({ full }) => full?.restoreMs)],
  ["  iptables-restore alone, by the clock", (result) => middle(result, ({ alone }) => alone?.ms)],
  ["  its processor time", aloneCpuOf],
  ["  own and other tools', of that", (result) => partOf(result), fixed(2)],
  ["  sent", ({ runs }) => runs[0]?.textBytes, size],
  ["restart with nothing changed, by the clock", ({ runs }) => runs[0]?.restartMs],
  ...changeRows("endpoint replaced"),
  ["  planning it, without a tool", ({ runs }) => runs[0]?.planningMs],
  ...changeRows("service added"),
  ...changeRows("service removed"),
  ["resident MB: with the model", ({ runs }) => runs[0]?.modelMb, megabytes],
  ["  peak in the first sync", ({ runs }) => runs[0]?.peakMb, megabytes],
  ["  settled", ({ runs }) => runs[0]?.settledMb, megabytes],
  ["cut off", ({ runs }) => runs[0]?.cutOff.join("; ") || undefined],
];

function partOf(result: SizeResult): number | undefined {
  const [own, alone] = [ownCpuOf(result), aloneCpuOf(result)];
  return own === undefined || alone === undefined ? undefined : own / alone;
}

export function iptablesTable(backEnd: BackEnd, results: readonly SizeResult[]): string {
  const columns = results.map(({ services }) => `${services} services`);
  return figuresTable(`${backEnd}, ms`, columns, results, ROWS);
}

export function judgeIptables(results: readonly SizeResult[]): readonly Verdict[] {
  const ownWork = results.flatMap((result) => {
    const part = partOf(result);
    if (part === undefined || result.services < OWN_WORK_FROM) return [];
    const what = `${result.backEnd}: a first sync of ${result.services} services, processor time of that of iptables-restore alone`;
    return [atMost(what, part, OWN_WORK_PART, fixed(2))];
  });
  return [...BACK_ENDS.flatMap((backEnd) => judgePlanning(backEnd, results)), ...ownWork];
}

function judgePlanning(backEnd: BackEnd, results: readonly SizeResult[]): readonly Verdict[] {
  const sorted = results
    .flatMap(({ runs: [first], ...size }) =>
      size.backEnd === backEnd && first?.planningMs !== undefined
        ? [{ services: size.services, planningMs: first.planningMs }]
        : [],
    )
    .sort((a, b) => a.services - b.services);
  const largest = sorted.pop();
  if (largest === undefined || sorted.length === 0) return [];
  const cheapest = sorted.reduce((least, one) => (one.planningMs < least.planningMs ? one : least));
  const what = `${backEnd}: planning a one-endpoint change (${ms(largest.planningMs)} ms) with ${largest.services} services, of that with ${cheapest.services}`;
  return [atMost(what, largest.planningMs / cheapest.planningMs, PLANNING_GROWTH, fixed(2))];
}
