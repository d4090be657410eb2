/**
 * `npm run bench -- start`: how long it takes from the start of the process to rules in the kernel, and what is resident
 * then, next to another checkout and to what no start can do without: the same lists read and parsed by the shortest program, and the same
 * batches sent. In turns. See docs/performance.md.
 */
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { layoutNameOf } from "../src/dataplane/nftables/layout-name.ts";
import { isProxyMode } from "../src/dataplane/registry.ts";
import { type Namespace, withNamespace } from "./namespace.ts";
import type { StartFigures, StartResult, StartTask } from "./start-figures.ts";
import { median } from "./statistics.ts";
import { megabytes, ms, size, table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./start-worker.ts", import.meta.url));
const OWN = fileURLToPath(new URL("..", import.meta.url));
const SIZES = ["15x4", "3000x4", "10000x5"] as const;

const USAGE = `Usage: npm run bench -- start [options]

Starts the built program at an API server over TLS, again and again, in a throw-away network namespace. Needs root.

  --sizes LIST         SERVICESxENDPOINTS,… (default ${SIZES.join(",")})
  --mode MODE          (default nftables)
  --layout NAME        of the nftables mode: Compatible or Flat (default Compatible); the other checkout has its default
  --rounds N           (default 5)
  --against DIR        another checkout with a built dist/, started in turns with this one
  --settle SECONDS     rest before the memory is read (default 20)
  --pages              lists in pages instead of streamed
  --json FILE          write all figures
  --help               this text
`;

function readArguments(argv: readonly string[]) {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      sizes: { type: "string", default: SIZES.join(",") },
      mode: { type: "string", default: "nftables" },
      layout: { type: "string" },
      rounds: { type: "string", default: "5" },
      against: { type: "string" },
      settle: { type: "string", default: "20" },
      pages: { type: "boolean", default: false },
      json: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return "help";
  const { mode } = values;
  if (!isProxyMode(mode)) throw new RangeError(`--mode: ${JSON.stringify(mode)} is no mode`);
  const layout = values.layout === undefined ? undefined : layoutNameOf(values.layout);
  if (values.layout !== undefined && (layout === undefined || mode !== "nftables")) {
    throw new RangeError(`--layout: ${JSON.stringify(values.layout)} is no layout of mode ${mode}`);
  }
  const tasks = values.sizes.split(",").map((text): StartTask => {
    const [, services, endpointsEach] = /^(\d+)x(\d+)$/.exec(text) ?? [];
    if (services === undefined) throw new RangeError(`--sizes: ${JSON.stringify(text)} is not like 3000x4`);
    return {
      mode,
      ...(layout && { layout }),
      services: Number(services),
      endpointsEach: Number(endpointsEach),
      hasWatchList: !values.pages,
      rounds: Number(values.rounds),
      checkouts: [OWN, ...(values.against === undefined ? [] : [resolve(values.against)])],
      settleSeconds: Number(values.settle),
    };
  });
  return { tasks, jsonFile: values.json };
}

async function runWorker({ name, env }: Namespace, task: StartTask): Promise<StartResult> {
  const child = spawn("ip", ["netns", "exec", name, process.execPath, WORKER, JSON.stringify(task)], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, ...env },
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const outcome = await new Promise<string>((done, reject) => {
    child.on("error", reject);
    child.on("close", (status, signal) => done(signal ?? String(status)));
  });
  if (outcome !== "0") throw new Error(`the worker for ${task.services} services ended with ${outcome}`);
  return JSON.parse(output);
}

/** The median of the ratios of single rounds, which share what else the machine was doing. */
function ratioOf(values: readonly number[], others: readonly number[]): string {
  const ratios = values.flatMap((value, at) => {
    const other = others[at];
    return other === undefined ? [] : [value / other];
  });
  return median(ratios).toFixed(2);
}

/** Medians. */
export function startTable({ task, listBytes, starts, floor }: StartResult): string {
  const [own = [], other] = starts;
  const row = (title: string, of: (figures: StartFigures) => number, text: (value: number) => string): string[] => {
    const mid = (all: readonly StartFigures[]) => text(median(all.map(of)));
    if (other === undefined) return [title, mid(own)];
    return [title, mid(own), mid(other), ratioOf(own.map(of), other.map(of))];
  };
  const floorRow = (title: string, values: readonly number[], ratio = "") => [title, ms(median(values)), "", ratio];
  return table(
    [
      `${task.mode}${task.layout === undefined ? "" : ` ${task.layout}`}, ${task.services} × ${task.endpointsEach}`,
      "here",
      ...(other === undefined ? [] : ["other", "ratio"]),
    ],
    [
      row("start to everything listed, ms", ({ listedMs }) => listedMs, ms),
      row("start to rules in the kernel, ms", ({ syncedMs }) => syncedMs, ms),
      row("  processor time until then, ms", ({ cpuMs }) => cpuMs, ms),
      floorRow(
        `shortest program, ${size(listBytes)} read and parsed, ms`,
        floor.map(({ parsedMs }) => parsedMs),
      ),
      floorRow(
        "  its processor time, ms",
        floor.map(({ cpuMs }) => cpuMs),
      ),
      ...sentRows(),
      row("resident MB, peak until then", ({ peakMb }) => peakMb, megabytes),
      row("  at rest", ({ settledMb }) => settledMb, megabytes),
      row("  of that its own alone", ({ settledPrivateMb }) => settledPrivateMb, megabytes),
    ],
  );

  function sentRows(): string[][] {
    const sent = floor.flatMap(({ sentMs }) => sentMs ?? []);
    if (sent.length === 0) return [];
    const floorMs = floor.map(({ parsedMs, sentMs = 0 }) => parsedMs + sentMs);
    // What a program that does one after the other cannot be under.
    const ratio =
      other &&
      ratioOf(
        floorMs,
        other.map(({ syncedMs }) => syncedMs),
      );
    return [
      floorRow("the batches for it only sent, ms", sent),
      floorRow("floor: lists parsed, then batches sent, ms", floorMs, ratio),
    ];
  }
}

/** Runs the bench. @returns the exit status. Rejects with TypeError or RangeError for a command line that is wrong. */
export async function benchStart(argv: readonly string[]): Promise<number> {
  const args = readArguments(argv);
  if (args === "help") {
    console.log(USAGE);
    return 0;
  }
  if (process.getuid?.() !== 0) throw new Error("network namespaces need root: run the bench as root");
  const results: StartResult[] = [];
  for (const task of args.tasks) {
    process.stderr.write(`starting with ${task.services} services × ${task.endpointsEach} endpoints…\n`);
    const result = await withNamespace((namespace) => runWorker(namespace, task));
    results.push(result);
    console.log(`${startTable(result)}\n`);
  }
  if (args.jsonFile !== undefined) writeFileSync(args.jsonFile, `${JSON.stringify(results, null, 2)}\n`);
  return 0;
}
