/**
 * `npm run bench -- nftables`: what the nftables mode costs by size, next to `nft -f` doing the same in the same run. See
 * docs/performance.md.
 */
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { type Namespace, withNamespace } from "./namespace.ts";
import type { NftablesFigures, NftablesTask, Spread } from "./nftables-figures.ts";
import { judgeNftables } from "./nftables-targets.ts";
import { engineOptions } from "./run-worker.ts";
import { megabytes, ms, table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./nftables-worker.ts", import.meta.url));

const USAGE = `Usage: npm run bench -- nftables [options]

Measures the nftables mode against the nft program of this machine, in throw-away network namespaces. Needs root.

  --quick              100 and 1000 services, few repetitions; under half a minute
  --sizes N,…          services (default 100,1000,10000,30000)
  --endpoints N        endpoints of each service (default 5)
  --limit SECONDS      for every run of nft; what is cut off is shown as such (default 300)
  --json FILE          write all figures
  --check              exit with status 1 when a target is missed
  --help               this text
`;

interface NftablesArguments {
  readonly tasks: readonly NftablesTask[];
  readonly jsonFile: string | undefined;
  readonly isChecking: boolean;
}

function readArguments(argv: readonly string[]): NftablesArguments | "help" {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      quick: { type: "boolean", default: false },
      sizes: { type: "string" },
      endpoints: { type: "string", default: "5" },
      limit: { type: "string", default: "300" },
      json: { type: "string" },
      check: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return "help";
  const { quick } = values;
  const sizes = values.sizes ?? (quick ? "100,1000" : "100,1000,10000,30000");
  const tasks = sizes.split(",").map((text): NftablesTask => {
    return {
      services: positive("--sizes", text),
      endpointsEach: positive("--endpoints", values.endpoints),
      changes: quick ? 100 : 500,
      nftChanges: quick ? 3 : 5,
      burstSeconds: quick ? 3 : 30,
      limitMs: 1000 * positive("--limit", values.limit),
    };
  });
  return { tasks, jsonFile: values.json, isChecking: values.check };
}

function positive(option: string, text: string): number {
  const number = Number(text);
  if (!Number.isInteger(number) || number < 1) {
    throw new RangeError(`${option}: ${JSON.stringify(text)} is no positive whole number`);
  }
  return number;
}

async function runWorker({ name }: Namespace, task: NftablesTask): Promise<NftablesFigures> {
  const node = [process.execPath, "--expose-gc", ...engineOptions()];
  const child = spawn("ip", ["netns", "exec", name, ...node, WORKER, JSON.stringify(task)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const outcome = await new Promise<string>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status, signal) => resolve(signal ?? String(status)));
  });
  if (outcome !== "0") throw new Error(`the worker for ${task.services} services ended with ${outcome}`);
  return JSON.parse(output);
}

const CUT_OFF = "cut off";

function pair(spread: Spread | undefined): string {
  return spread === undefined ? CUT_OFF : `${ms(spread.p50)} / ${ms(spread.p99)}`;
}

/** A column per size. */
export function nftablesTable(results: readonly NftablesFigures[]): string {
  const row = (title: string, cell: (figures: NftablesFigures) => string) => [title, ...results.map(cell)];
  const upstreamFactor = ({ oneChange, nftOneChange, nftListing }: NftablesFigures) =>
    nftOneChange === undefined ? CUT_OFF : `${((nftOneChange.p50 + nftListing.p50) / oneChange.p50).toFixed(0)} ×`;
  const factor = ({ oneChange, nftOneChange }: NftablesFigures) =>
    nftOneChange === undefined ? CUT_OFF : `${(nftOneChange.p50 / oneChange.p50).toFixed(0)} ×`;
  return table(
    ["milliseconds", ...results.map(({ services }) => `${services} services`)],
    [
      row("one endpoint changed, event to commit, p50 / p99", ({ oneChange }) => pair(oneChange)),
      row("  the same by nft -f", ({ nftOneChange }) => pair(nftOneChange)),
      row("  nft -f takes", factor),
      row("  with the listing that upstream makes before it", ({ nftListing }) => pair(nftListing)),
      row("  both take", upstreamFactor),
      row("  of that outside of the kernel", ({ oneChangeOwn }) => pair(oneChangeOwn)),
      row("a service added, p50 / p99", ({ serviceAdded }) => pair(serviceAdded)),
      row("  the same by nft -f", ({ nftServiceAdded }) => pair(nftServiceAdded)),
      row("100 services changed in one sync, p50 / p99", ({ hundredChanges }) => pair(hundredChanges)),
      row("  the same by nft -f", ({ nftHundredChanges }) => pair(nftHundredChanges)),
      row("1000 changes a second, latency p50 / p99", ({ burst }) => pair(burst.latency)),
      row("  CPU, part of a core", ({ burst }) => `${(burst.cpuShare * 100).toFixed(0)} %`),
      row("initial load", ({ initialLoadMs }) => ms(initialLoadMs)),
      row("  the same by nft -f", ({ nftInitialLoadMs }) =>
        nftInitialLoadMs === undefined ? CUT_OFF : ms(nftInitialLoadMs),
      ),
      row("  longest time without an answer from the event loop", ({ initialDelayMs }) => ms(initialDelayMs)),
      row("restart with nothing changed", ({ restartMs }) => ms(restartMs)),
      row("  transactions", ({ restartWrites }) => String(restartWrites)),
      row("resident MB: before, peak, settled", ({ modelMb, peakMb, settledMb }) =>
        [modelMb, peakMb, settledMb].map(megabytes).join(" / "),
      ),
    ],
  );
}

/** Runs the bench. @returns the exit status. Rejects with TypeError or RangeError for a command line that is wrong. */
export async function benchNftables(argv: readonly string[]): Promise<number> {
  const args = readArguments(argv);
  if (args === "help") {
    console.log(USAGE);
    return 0;
  }
  if (process.getuid?.() !== 0) throw new Error("network namespaces need root: run the bench as root");
  const results: NftablesFigures[] = [];
  for (const task of args.tasks) {
    process.stderr.write(`measuring ${task.services} services × ${task.endpointsEach} endpoints…\n`);
    results.push(await withNamespace((namespace) => runWorker(namespace, task)));
  }
  console.log(nftablesTable(results));
  console.log("");
  const verdicts = judgeNftables(results);
  for (const { passed, text } of verdicts) console.log(`${passed ? "PASS" : "FAIL"}  ${text}`);
  if (args.jsonFile !== undefined) {
    writeFileSync(args.jsonFile, `${JSON.stringify({ node: process.version, results, verdicts }, null, 2)}\n`);
  }
  return args.isChecking && verdicts.some(({ passed }) => !passed) ? 1 : 0;
}
