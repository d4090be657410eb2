/**
 * `npm run bench -- path`: connecting to an endpoint directly and through a cluster IP, in both layouts of the nftables mode.
 * Two namespaces, one for each layout, measured in turns; what counts are ratios in one round.
 */
import { fileURLToPath } from "node:url";
import { type LineProcess, startLines } from "./bench-processes.ts";
import { between, type Figure, middle, ofDirect, type Round, takeRounds, type Way } from "./connect-arms.ts";
import type { Bench, Outcome } from "./driver.ts";
import { estimateText, judgeEstimate } from "./estimate.ts";
import { withNamespace } from "./namespace.ts";
import type { PathTask } from "./path-worker.ts";
import { table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./path-worker.ts", import.meta.url));

type Name = "flat" | "compatible";
const NAMES = ["flat", "compatible"] as const;
/** Pairs of namespaces, one after the other: what differs between two with the same work is up to 10 %. */
const PAIRS = 4;
const FIGURES: readonly (readonly [string, Figure])[] = [
  ["until connected", "p50Us"],
  ["processor time", "cpuUs"],
];

export const bench: Bench = {
  name: "path",
  about:
    "What a connection through a cluster IP costs in the two layouts of the nftables mode, next to a direct one. Needs root.",
  options: {
    services: { value: "N", initial: "10000", help: "of the cluster" },
    rounds: { value: "N", initial: "600", help: "of 100 connections each way" },
  },
  run: (given) => measure(given.whole("services"), given.whole("rounds")),
};

async function measure(services: number, rounds: number): Promise<Outcome> {
  const taken: Round<Name>[] = [];
  for (let pair = 1; pair <= PAIRS; pair += 1) {
    process.stderr.write(`connecting among ${services} services, namespaces ${pair} of ${PAIRS}…\n`);
    const some = await withWorker({ layout: "Flat", services }, (flat) =>
      withWorker({ layout: "Compatible", services }, (compatible) =>
        takeRounds({ flat, compatible }, Math.ceil(rounds / PAIRS)),
      ),
    );
    taken.push(...some);
  }
  console.log(
    `medians of ${rounds} rounds of 100 connections each way, and where the median lies at 95 %\n${figuresTable(services, taken)}`,
  );
  const found = between(taken, NAMES, "service", "p50Us");
  const what = "a connection through a cluster IP, until connected, flat : compatible";
  return { verdicts: [judgeEstimate(what, found, 1)] };
}

function figuresTable(services: number, taken: readonly Round<Name>[]): string {
  const rows = FIGURES.flatMap(([what, figure]) => {
    const us = (name: Name, way: Way): string => middle(taken, name, way, figure).toFixed(1);
    const part = (name: Name): string => estimateText(ofDirect(taken, name, figure));
    const compared = (way: Way): string => estimateText(between(taken, NAMES, way, figure));
    return [
      [`${what}, direct, µs`, us("flat", "direct"), us("compatible", "direct"), compared("direct")],
      ["  through a cluster IP, µs", us("flat", "service"), us("compatible", "service"), compared("service")],
      ["  of a direct one", part("flat"), part("compatible"), ""],
    ];
  });
  return table([`a connection, ${services} services`, "flat", "compatible", "flat : compatible"], rows);
}

/** Starts a worker that has its cluster in the kernel when `work` begins. */
async function withWorker<T>(task: PathTask, work: (worker: LineProcess) => Promise<T>): Promise<T> {
  return await withNamespace(async ({ name }) => {
    const worker = startLines("ip", ["netns", "exec", name, process.execPath, WORKER, JSON.stringify(task)]);
    try {
      await worker.next();
      return await work(worker);
    } finally {
      worker.end();
    }
  });
}
