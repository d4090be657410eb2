/**
 * `npm run bench -- cost`: what one change costs outside of the kernel, by size, from the line of the watch to the bytes of
 * the batch (change-cost-subject.ts); and what the cluster weighs. Needs no root.
 */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { layoutNameOf } from "../src/dataplane/nftables/layout-name.ts";
import type { ChangeCostFigures, ChangeCostTask } from "./change-cost-figures.ts";
import { engineOptions, memoryEnvironment } from "./run-worker.ts";
import { table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./change-cost-worker.ts", import.meta.url));
/** What the largest size may cost, of the smallest. */
const GROWTH = 1.5;
/** Of processor time for each change at a steady rate. */
const RATE_US = 150;

const USAGE = `Usage: npm run bench -- cost [options]

What one change costs outside of the kernel (nftables mode, API server as the source), processor time of all threads; and memory.

  --sizes N,…          services (default 100,1000,10000,100000)
  --endpoints N        endpoints of each (default 5)
  --layout NAME        of the nftables mode, Compatible or Flat (default Flat)
  --changes N          repetitions (default 2000)
  --seconds N          of 1,000 and 5,000 changes a second each; 0: none (default 0)
  --prof DIR           writes a CPU profile of each size there
  --check              exit with status 1 when a target is missed
  --help               this text
`;

/** Runs the bench. @returns the exit status. Rejects with TypeError or RangeError for a command line that is wrong. */
export async function benchChangeCost(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      sizes: { type: "string", default: "100,1000,10000,100000" },
      endpoints: { type: "string", default: "5" },
      changes: { type: "string", default: "2000" },
      layout: { type: "string", default: "Flat" },
      seconds: { type: "string", default: "0" },
      prof: { type: "string" },
      check: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  const layout = layoutNameOf(values.layout);
  if (layout === undefined) throw new RangeError(`--layout: ${JSON.stringify(values.layout)} is no layout`);
  const results: ChangeCostFigures[] = [];
  for (const size of values.sizes.split(",")) {
    const task: ChangeCostTask = {
      services: whole("--sizes", size, 1),
      endpointsEach: whole("--endpoints", values.endpoints, 1),
      layout,
      changes: whole("--changes", values.changes, 1),
      seconds: whole("--seconds", values.seconds, 0),
    };
    results.push(await runWorker(task, values.prof));
  }
  console.log(costTable(results));
  const verdicts = judge(results);
  for (const { passed, text } of verdicts) console.log(`${passed ? "PASS" : "FAIL"}  ${text}`);
  return values.check && verdicts.some(({ passed }) => !passed) ? 1 : 0;
}

function whole(option: string, text: string, least: number): number {
  const number = Number(text);
  if (!Number.isInteger(number) || number < least) {
    throw new RangeError(`${option}: ${JSON.stringify(text)} is no whole number from ${least} on`);
  }
  return number;
}

async function runWorker(task: ChangeCostTask, profiles: string | undefined): Promise<ChangeCostFigures> {
  const profiling = profiles === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profiles}`];
  const args = ["--expose-gc", ...profiling, ...engineOptions(), WORKER, JSON.stringify(task)];
  const child = spawn(process.execPath, args, {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, ...memoryEnvironment() },
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

function costTable(results: readonly ChangeCostFigures[]): string {
  const row = (title: string, value: (figures: ChangeCostFigures) => string): string[] => [
    title,
    ...results.map(value),
  ];
  const us = (value: number): string => value.toFixed(0);
  const perService = ({ services, memory }: ChangeCostFigures): string =>
    (((memory.heapMb - memory.emptyHeapMb) * 2 ** 20) / services / 1000).toFixed(1);
  const rates = results[0]?.atRates ?? [];
  return table(
    ["", ...results.map(({ services }) => String(services))],
    [
      row("endpoint replaced, alone: µs of processor time", ({ replacedUs }) => us(replacedUs)),
      row("service added with its slice, alone: µs", ({ addedUs }) => us(addedUs)),
      ...rates.map(({ perSecond }, at) =>
        row(`${perSecond} endpoints a second: µs each`, ({ atRates }) => us(atRates[at]?.us ?? 0)),
      ),
      row("bytes to the kernel for an endpoint", ({ bytes }) => us(bytes)),
      row("metrics scraped: µs", ({ scrapeUs }) => us(scrapeUs)),
      row("first load: ms", ({ loadMs }) => us(loadMs)),
      row("first load: ms of processor time", ({ loadCpuMs }) => us(loadCpuMs)),
      row("heap per service: kB", perService),
      row("resident, settled: MB", ({ memory }) => us(memory.rssMb)),
      row("resident before: MB", ({ memory }) => us(memory.emptyMb)),
    ],
  );
}

function judge(results: readonly ChangeCostFigures[]): { readonly passed: boolean; readonly text: string }[] {
  const small = results[0];
  const large = results.at(-1);
  if (small === undefined || large === undefined) return [];
  const sizes = `at ${large.services} services as at ${small.services}, ${GROWTH} × wanted`;
  const growth = (name: string, of: (figures: ChangeCostFigures) => number) => {
    const ratio = of(large) / of(small);
    return { passed: ratio <= GROWTH, text: `${name} costs ${ratio.toFixed(2)} × as much ${sizes}` };
  };
  return [
    ...(small === large
      ? []
      : [
          growth("a replaced endpoint", ({ replacedUs }) => replacedUs),
          growth("an added service", ({ addedUs }) => addedUs),
          growth("a scrape", ({ scrapeUs }) => scrapeUs),
        ]),
    ...results.flatMap(({ services, atRates }) =>
      atRates.map(({ perSecond, us }) => ({
        passed: us <= RATE_US,
        text: `${services} services, ${perSecond} changes a second: ${us.toFixed(0)} µs each, ${RATE_US} µs wanted`,
      })),
    ),
  ];
}
