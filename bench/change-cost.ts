/**
 * `npm run bench -- cost`: what one change costs outside of the kernel, by size, from the line of the watch to the bytes of
 * the batch (change-cost-subject.ts); and what the cluster weighs. Needs no root.
 */
import { fileURLToPath } from "node:url";
import { type LayoutName, layoutNameOf } from "../src/dataplane/nftables/layout-name.ts";
import { type Bench, workerFigures } from "./driver.ts";
import { table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./change-cost-worker.ts", import.meta.url));
/** What the largest size may cost, of the smallest. */
const GROWTH = 1.5;
/** Of processor time for each change at a steady rate. */
const RATE_US = 150;

export const bench: Bench = {
  name: "cost",
  about:
    "What one change costs outside of the kernel (nftables mode, API server as the source), processor time of all threads; and memory.",
  needsRoot: false,
  options: {
    sizes: { value: "N,…", initial: "100,1000,10000,100000", help: "services" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each" },
    layout: { value: "NAME", initial: "Flat", help: "of the nftables mode, Compatible or Flat" },
    changes: { value: "N", initial: "2000", help: "repetitions" },
    seconds: { value: "N", initial: "0", help: "of 1,000 and 5,000 changes a second each; 0: none" },
    prof: { value: "DIR", help: "writes a CPU profile of each size there" },
  },
  async run(given) {
    const layout = layoutNameOf(given.text("layout"));
    if (layout === undefined) throw new RangeError(`--layout: ${JSON.stringify(given.text("layout"))} is no layout`);
    const profiles = given.optional("prof");
    const nodeOptions = profiles === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profiles}`];
    const results: ChangeCostFigures[] = [];
    for (const services of given.wholes("sizes")) {
      const [endpointsEach, changes, seconds] = [
        given.whole("endpoints"),
        given.whole("changes"),
        given.whole("seconds", 0),
      ];
      const task: ChangeCostTask = { services, endpointsEach, layout, changes, seconds };
      results.push(await workerFigures({ script: WORKER, task, nodeOptions, isOnHost: true }));
    }
    console.log(costTable(results));
    return { verdicts: judge(results), figures: { results } };
  },
};

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

/** Changes a second. */
export const RATES = [1_000, 5_000] as const;

export interface ChangeCostTask {
  readonly services: number;
  readonly endpointsEach: number;
  readonly layout: LayoutName;
  /** Repetitions of a change that comes alone. */
  readonly changes: number;
  /** Of each of {@link RATES}; 0: none. */
  readonly seconds: number;
}

export interface ChangeCostFigures {
  readonly services: number;
  /** From the first line of the watch to the bytes of all batches. */
  readonly loadMs: number;
  readonly loadCpuMs: number;
  /** Mean processor time of an endpoint replaced, alone in its sync, µs; all threads. */
  readonly replacedUs: number;
  /** The same of a service added with its slice. */
  readonly addedUs: number;
  readonly scrapeUs: number;
  /** Sent to the kernel for a replaced endpoint. */
  readonly bytes: number;
  /** Megabytes, before and after the load. */
  readonly memory: {
    readonly emptyMb: number;
    readonly emptyHeapMb: number;
    readonly rssMb: number;
    readonly heapMb: number;
  };
  /** Mean processor time per change. */
  readonly atRates: readonly { readonly perSecond: number; readonly us: number }[];
  readonly rssAfterMb: number;
}
