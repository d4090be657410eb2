/**
 * `npm run bench`: what a sync of the iptables mode costs, by size and back end, next to iptables-restore alone in the same
 * run. See docs/performance.md.
 */
import { execFileSync, spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmSync, statSync } from "node:fs";
import { availableParallelism, loadavg, release, tmpdir } from "node:os";
import { join } from "node:path";
import { binariesOf } from "../src/kernel/iptables/testing/binaries.ts";
import type { Bench, Given, Outcome } from "./driver.ts";
import { BACK_ENDS, type BackEnd, type SizeResult, type StepReport, type WorkerTask } from "./figures.ts";
import { compareForms } from "./forms.ts";
import { toolsCpuMs } from "./memory.ts";
import { atExit, type Namespace, withNamespace } from "./namespace.ts";
import { tablesOf } from "./report.ts";
import { engineOptions, runWorker } from "./run-worker.ts";
import { judge } from "./targets.ts";

const FULL_SIZES = "100,1000,5000,10000";

export const bench: Bench = {
  name: "",
  about: `Measures the iptables mode against the iptables-restore of this machine, in throw-away network namespaces. Needs root.
With a name first, another bench: npm run bench -- NAME --help.`,
  options: {
    quick: { help: "few repetitions; under half a minute" },
    sizes: { value: "N,…", initial: FULL_SIZES, quick: "100,1000", help: "services" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each service" },
    "back-ends": { value: "LIST", initial: BACK_ENDS.join(","), help: "of the tools" },
    limit: { value: "SECONDS", initial: "60", quick: "10", help: "for every step; what is cut off is printed" },
    "total-limit": {
      value: "SECONDS",
      initial: "1200",
      quick: "30",
      help: "sizes that would start later are left out",
    },
    forms: { help: "compare forms of payload instead: ours, upstream's, and in parts, at 1,000 and 10,000" },
  },
  run: measure,
};

/** A restore that took longer is not repeated. */
const LONG_RESTORE_MS = 10_000;

interface Conditions {
  readonly endpointsEach: number;
  readonly limitMs: number;
  /** Repetitions of each small change, of plannings, and of first full syncs and iptables-restore alone. */
  readonly repeats: { readonly changes: number; readonly plannings: number; readonly full: number };
}

async function measureSize(
  { endpointsEach, limitMs, repeats }: Conditions,
  backEnd: BackEnd,
  services: number,
  textFile: string,
): Promise<SizeResult> {
  const { changes, plannings } = repeats;
  const task: WorkerTask = {
    backEnd,
    services,
    endpointsEach,
    limitMs,
    changes,
    plannings,
    onlyOwnWork: false,
    onlyFullSync: false,
  };
  const reports: StepReport[] = [];
  const keep = (report: StepReport): void => void reports.push(report);
  const work = (wanted: WorkerTask) => withNamespace((space) => runWorker(space, wanted, 10 * limitMs, keep));

  await work({ ...task, textFile });
  const alone: RestoreTime[] = [];
  const restore = async (): Promise<RestoreTime | undefined> => {
    const time = await withNamespace((space) => restoreAlone(space, backEnd, textFile, limitMs));
    if (time !== undefined) alone.push(time);
    return time;
  };
  const first = await restore();
  if (first === undefined) {
    const reason = `no end after ${limitMs / 1000} s; the sync is measured without tools`;
    keep({ step: "cut off", what: "iptables-restore alone", reason });
  }
  await work({ ...task, onlyOwnWork: first === undefined });
  // In turns, so that a machine that gets busier shows in both.
  if (first !== undefined && first.wallMs < LONG_RESTORE_MS) {
    for (let round = 1; round < repeats.full; round += 1) {
      await restore();
      await work({ ...task, onlyFullSync: true });
    }
  }
  return { backEnd, services, endpointsEach, textBytes: statSync(textFile).size, alone, reports };
}

/** What the figures depend on besides the program. */
function machineText(): string {
  const version = (backEnd: BackEnd) => {
    const { rule } = binariesOf("IPv4", backEnd);
    return execFileSync(rule, ["--version"], { encoding: "utf8" }).trim();
  };
  const parts = [
    `Node.js ${process.version} ${engineOptions().join(" ")}`.trim(),
    `kernel ${release()}`,
    ...BACK_ENDS.map(version),
    `${availableParallelism()} processors, load ${loadavg()[0]?.toFixed(1)}`,
  ];
  return parts.join(", ");
}

async function inTemporaryFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "kpts-bench-"));
  const remove = atExit(() => rmSync(folder, { recursive: true, force: true }));
  try {
    return await work(folder);
  } finally {
    remove();
  }
}

async function measureAll(given: Given, conditions: Conditions, textFile: string): Promise<SizeResult[]> {
  const results: SizeResult[] = [];
  const totalSeconds = given.whole("total-limit");
  const endMs = performance.now() + 1000 * totalSeconds;
  for (const backEnd of backEndsOf(given)) {
    console.log(`\n── ${backEnd} ──`);
    const own: SizeResult[] = [];
    for (const services of given.wholes("sizes")) {
      if (performance.now() > endMs) {
        console.log(`${services} services: left out, the bench has run for ${totalSeconds} s`);
        continue;
      }
      process.stderr.write(`measuring ${services} services × ${conditions.endpointsEach} endpoints with ${backEnd}…\n`);
      own.push(await measureSize(conditions, backEnd, services, textFile));
    }
    console.log(tablesOf(own, conditions.limitMs));
    results.push(...own);
  }
  return results;
}

const backEndsOf = (given: Given): readonly BackEnd[] =>
  given.list("back-ends").map((text) => given.oneOf("back-ends", BACK_ENDS, text));

async function measure(given: Given): Promise<Outcome> {
  const conditions: Conditions = {
    endpointsEach: given.whole("endpoints"),
    limitMs: 1000 * given.whole("limit"),
    repeats: given.isOn("quick") ? { changes: 3, plannings: 200, full: 3 } : { changes: 15, plannings: 1000, full: 5 },
  };
  const { endpointsEach, limitMs, repeats } = conditions;
  const machine = machineText();
  console.log(machine);
  if (given.isOn("forms")) {
    const sizes = given.optional("sizes") === FULL_SIZES ? [1000, 10_000] : given.wholes("sizes");
    await inTemporaryFolder((folder) =>
      compareForms(backEndsOf(given), sizes, endpointsEach, {
        file: join(folder, "payload"),
        limitMs,
        rounds: repeats.changes,
      }),
    );
    return {};
  }
  const results = await inTemporaryFolder((folder) => measureAll(given, conditions, join(folder, "payload")));
  return { verdicts: judge(results, limitMs), figures: { machine, results } };
}

/** Milliseconds by the clock and of processor time. */
export interface RestoreTime {
  readonly wallMs: number;
  readonly cpuMs: number;
}

/** Rejects with the tool's complaint. Resolves to undefined when it was killed at the limit. */
export async function restoreAlone(
  { name, env }: Namespace,
  backEnd: BackEnd,
  textFile: string,
  limitMs: number,
): Promise<RestoreTime | undefined> {
  const tool = binariesOf("IPv4", backEnd).restore;
  const text = openSync(textFile, "r");
  const startMs = performance.now();
  const startCpuMs = toolsCpuMs();
  // `ip netns exec` becomes the tool: one process, and a signal to it reaches the tool.
  const child = spawn("ip", ["netns", "exec", name, tool, "--noflush", "--counters"], {
    stdio: [text, "ignore", "pipe"],
    env: { ...process.env, ...env },
    timeout: limitMs,
    killSignal: "SIGKILL",
  });
  closeSync(text);
  let complaint = "";
  child.stderr?.on("data", (chunk) => (complaint += String(chunk)));
  const [status, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (...end) => resolve(end));
  });
  if (signal === "SIGKILL") return undefined;
  if (status !== 0) throw new Error(`${tool}: ${complaint.trim()}`);
  return { wallMs: performance.now() - startMs, cpuMs: toolsCpuMs() - startCpuMs };
}
