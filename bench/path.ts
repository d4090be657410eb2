/**
 * `npm run bench -- path`: connecting to an endpoint directly and through a cluster IP, in both layouts of the nftables mode.
 * Two namespaces, one for each layout, measured in turns; what counts are ratios in one round.
 */
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { type LineProcess, startLines } from "./bench-processes.ts";
import { between, type Figure, middle, ofDirect, type Round, takeRounds, type Way } from "./connect-arms.ts";
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

const USAGE = `Usage: npm run bench -- path [options]

What a connection through a cluster IP costs in the two layouts of the nftables mode, next to a direct one. Needs root.

  --services N  (default 10000)
  --rounds N    of 100 connections each way (default 600)
  --check       exit with status 1 when the target is missed
  --help        this text
`;

/** Runs the bench. @returns the exit status. Rejects with TypeError for a command line that is wrong. */
export async function benchPath(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      services: { type: "string", default: "10000" },
      rounds: { type: "string", default: "600" },
      check: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  if (process.getuid?.() !== 0) throw new Error("network namespaces need root: run the bench as root");
  const services = Number(values.services);
  const rounds = Number(values.rounds);
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
  const { passed, text } = judgeEstimate(
    "a connection through a cluster IP, until connected, flat : compatible",
    found,
    1,
  );
  console.log(`${passed ? "ok    " : "missed"}  ${text}`);
  return values.check && !passed ? 1 : 0;
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
