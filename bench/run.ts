/**
 * `npm run bench`: what a sync of the iptables mode costs, by size and back end, next to iptables-restore alone in the same
 * run. See docs/performance.md.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { availableParallelism, loadavg, release, tmpdir } from "node:os";
import { join } from "node:path";
import { binariesOf } from "../src/kernel/iptables/exec-iptables.ts";
import { type BenchArguments, readArguments, USAGE } from "./arguments.ts";
import { atExit } from "./at-exit.ts";
import { BACK_ENDS, type BackEnd, type StepReport, type WorkerTask } from "./figures.ts";
import { compareForms } from "./forms.ts";
import { withNamespace } from "./namespace.ts";
import { tablesOf } from "./report.ts";
import { type RestoreTime, restoreAlone } from "./restore-alone.ts";
import { engineOptions, runWorker } from "./run-worker.ts";
import type { SizeResult } from "./size-result.ts";
import { judge } from "./targets.ts";

/** What has a bench of its own, by its first argument. */
const BENCHES: ReadonlyMap<string, () => Promise<(argv: readonly string[]) => Promise<number>>> = new Map([
  ["start", async () => (await import("./start.ts")).benchStart],
  ["apiserver", async () => (await import("./apiserver.ts")).benchApiServer],
  ["nftables", async () => (await import("./nftables.ts")).benchNftables],
  ["ipvs", async () => (await import("./ipvs.ts")).benchIpvs],
  ["cost", async () => (await import("./change-cost.ts")).benchChangeCost],
  ["functions", async () => (await import("./event-functions.ts")).benchEventFunctions],
  ["kernelspace", async () => (await import("./kernelspace.ts")).benchKernelspace],
  ["connection", async () => (await import("./connection.ts")).benchConnection],
  ["trace", async () => (await import("./trace.ts")).benchTrace],
  ["path", async () => (await import("./path.ts")).benchPath],
  ["ebpf", async () => (await import("./ebpf.ts")).benchEbpf],
  ["userspace", async () => (await import("./userspace.ts")).benchUserspace],
  ["explain", async () => (await import("./explain.ts")).benchExplain],
  ["status", async () => (await import("./status.ts")).benchStatus],
]);

/** A restore that took longer is not repeated. */
const LONG_RESTORE_MS = 10_000;

async function measureSize(
  args: BenchArguments,
  backEnd: BackEnd,
  services: number,
  textFile: string,
): Promise<SizeResult> {
  const { endpointsEach, limitMs, repeats } = args;
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

async function measureAll(args: BenchArguments, textFile: string): Promise<SizeResult[]> {
  const results: SizeResult[] = [];
  const endMs = performance.now() + args.totalLimitMs;
  for (const backEnd of args.backEnds) {
    console.log(`\n── ${backEnd} ──`);
    const own: SizeResult[] = [];
    for (const services of args.sizes) {
      if (performance.now() > endMs) {
        console.log(`${services} services: left out, the bench has run for ${args.totalLimitMs / 1000} s`);
        continue;
      }
      process.stderr.write(`measuring ${services} services × ${args.endpointsEach} endpoints with ${backEnd}…\n`);
      own.push(await measureSize(args, backEnd, services, textFile));
    }
    console.log(tablesOf(own, args.limitMs));
    results.push(...own);
  }
  return results;
}

async function main(): Promise<number> {
  const [mode, ...rest] = process.argv.slice(2).filter((word) => word !== "--");
  const bench = mode === undefined ? undefined : BENCHES.get(mode);
  if (bench !== undefined) return await (await bench())(rest);
  const args = readArguments(process.argv.slice(2));
  if (args === "help") {
    console.log(USAGE);
    return 0;
  }
  if (process.getuid?.() !== 0) throw new Error("network namespaces need root: run the bench as root");
  console.log(machineText());
  if (args.comparesForms) {
    await inTemporaryFolder((folder) =>
      compareForms(args.backEnds, args.sizes, args.endpointsEach, {
        file: join(folder, "payload"),
        limitMs: args.limitMs,
        rounds: args.repeats.changes,
      }),
    );
    return 0;
  }
  const results = await inTemporaryFolder((folder) => measureAll(args, join(folder, "payload")));
  console.log("");
  const verdicts = judge(results, args.limitMs);
  for (const { passed, text } of verdicts) console.log(`${passed ? "PASS" : "FAIL"}  ${text}`);
  if (args.jsonFile !== undefined) {
    writeFileSync(args.jsonFile, `${JSON.stringify({ machine: machineText(), results, verdicts }, null, 2)}\n`);
  }
  return args.isChecking && verdicts.some(({ passed }) => !passed) ? 1 : 0;
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 2;
}
