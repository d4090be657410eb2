/**
 * `npm run bench -- apiserver`: what it costs to follow an API server, with the whole program as it is installed and the
 * test API server in a process of its own. See docs/performance.md.
 */
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import type { ApiServerFigures, ApiServerTask, StreamFigures } from "./apiserver-figures.ts";
import { judgeApiServer } from "./apiserver-targets.ts";
import { type Namespace, withNamespace } from "./namespace.ts";
import { megabytes, ms, size, table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./apiserver-worker.ts", import.meta.url));
const MODES = ["nftables", "iptables"] as const;

const USAGE = `Usage: npm run bench -- apiserver [options]

Measures the whole program at an API server over TLS, in throw-away network namespaces: the initial list until the rules are
in the kernel, memory, and a stream of endpoint changes. Needs root.

  --quick              1000 services, 5 s of events
  --modes LIST         nftables,iptables (default nftables)
  --services N         (default 10000)
  --endpoints N        endpoints of each service (default 5)
  --rate N             endpoint changes a second (default 1000)
  --seconds N          of them (default 25)
  --pages              lists in pages instead of streamed
  --json FILE          write all figures
  --check              exit with status 1 when a target is missed
  --help               this text
`;

interface ApiServerArguments {
  readonly tasks: readonly ApiServerTask[];
  readonly jsonFile: string | undefined;
  readonly isChecking: boolean;
}

function readArguments(argv: readonly string[]): ApiServerArguments | "help" {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      quick: { type: "boolean", default: false },
      modes: { type: "string", default: "nftables" },
      services: { type: "string" },
      endpoints: { type: "string", default: "5" },
      rate: { type: "string", default: "1000" },
      seconds: { type: "string" },
      pages: { type: "boolean", default: false },
      json: { type: "string" },
      check: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return "help";
  const { quick } = values;
  const common = {
    services: positive("--services", values.services ?? (quick ? "1000" : "10000")),
    endpointsEach: positive("--endpoints", values.endpoints),
    hasWatchList: !values.pages,
    eventsPerSecond: positive("--rate", values.rate),
    eventSeconds: positive("--seconds", values.seconds ?? (quick ? "5" : "25")),
    settleSeconds: 20,
  };
  const tasks = values.modes.split(",").map((text): ApiServerTask => {
    const mode = MODES.find((known) => known === text);
    if (mode === undefined) throw new RangeError(`--modes: ${JSON.stringify(text)} is not one of ${MODES.join(", ")}`);
    return { ...common, mode };
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

async function runWorker({ name, env }: Namespace, task: ApiServerTask): Promise<ApiServerFigures> {
  const child = spawn("ip", ["netns", "exec", name, process.execPath, WORKER, JSON.stringify(task)], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, ...env },
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const outcome = await new Promise<string>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status, signal) => resolve(signal ?? String(status)));
  });
  if (outcome !== "0") throw new Error(`the worker for ${task.mode} ended with ${outcome}`);
  return JSON.parse(output);
}

/** A column per mode. */
export function apiServerTable(results: readonly ApiServerFigures[]): string {
  const row = (title: string, cell: (figures: ApiServerFigures) => string) => [title, ...results.map(cell)];
  const us = (value: number): string => `${value.toFixed(0)} µs`;
  const streamRows = (title: string, of: (figures: ApiServerFigures) => StreamFigures) => [
    row(`${title}: processor time per event`, (figures) => us(of(figures).cpuUsPerEvent)),
    row("  of that in the kernel", (figures) => us(of(figures).kernelCpuUsPerEvent)),
    row("  tools, beside it", (figures) => us(of(figures).childrenCpuUsPerEvent)),
    row("  allocated per event", (figures) => size(Math.round(of(figures).allocatedBytesPerEvent))),
    row("  standing still to collect garbage", (figures) => `${(of(figures).pauseShare * 100).toFixed(1)} %`),
  ];
  return table(
    ["", ...results.map(({ mode, services, endpointsEach }) => `${mode}, ${services} × ${endpointsEach}`)],
    [
      row("sent for the initial lists", ({ listBytes }) => size(listBytes)),
      row("start of the process to everything listed, ms", ({ listedMs }) => ms(listedMs)),
      row("start of the process to rules in the kernel, ms", ({ syncedMs }) => ms(syncedMs)),
      row("  processor time until then, tools included, ms", ({ syncedCpuMs }) => ms(syncedCpuMs)),
      row("resident MB: peak until then", ({ peakMb }) => megabytes(peakMb)),
      row("  settled", ({ settledMb }) => megabytes(settledMb)),
      row("  of that pages of files, which processes share", ({ fileMb }) => megabytes(fileMb)),
      row("events sent", ({ stream }) => `${stream.events} × ${size(Math.round(stream.bytesPerEvent))}`),
      ...streamRows("whole program", ({ stream }) => stream),
      row("  resident MB at their end, and settled", ({ stream, afterStreamMb }) =>
        [stream.rssMb, afterStreamMb].map(megabytes).join(" / "),
      ),
      ...streamRows("API source alone", ({ source }) => source),
    ],
  );
}

/** Runs the bench. @returns the exit status. Rejects with TypeError or RangeError for a command line that is wrong. */
export async function benchApiServer(argv: readonly string[]): Promise<number> {
  const args = readArguments(argv);
  if (args === "help") {
    console.log(USAGE);
    return 0;
  }
  if (process.getuid?.() !== 0) throw new Error("network namespaces need root: run the bench as root");
  const results: ApiServerFigures[] = [];
  for (const task of args.tasks) {
    process.stderr.write(`measuring ${task.mode} with ${task.services} services × ${task.endpointsEach} endpoints…\n`);
    results.push(await withNamespace((namespace) => runWorker(namespace, task)));
  }
  console.log(apiServerTable(results));
  console.log("");
  const verdicts = judgeApiServer(results);
  for (const { passed, text } of verdicts) console.log(`${passed ? "PASS" : "FAIL"}  ${text}`);
  if (args.jsonFile !== undefined) {
    writeFileSync(args.jsonFile, `${JSON.stringify({ node: process.version, results, verdicts }, null, 2)}\n`);
  }
  return args.isChecking && verdicts.some(({ passed }) => !passed) ? 1 : 0;
}
