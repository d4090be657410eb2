/**
 * `npm run bench -- path`: connecting to an endpoint directly and through a cluster IP, in both layouts of the nftables mode.
 * Two namespaces, one for each layout, measured in turns; what counts are ratios in one round.
 */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { signalChild } from "../src/kernel/child-process.ts";
import { withNamespace } from "./namespace.ts";
import type { PathRound, PathTask } from "./path-worker.ts";
import { median } from "./statistics.ts";
import { table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./path-worker.ts", import.meta.url));

const USAGE = `Usage: npm run bench -- path [options]

What a connection through a cluster IP costs in the two layouts of the nftables mode, next to a direct one. Needs root.

  --services N  (default 10000)
  --rounds N    of 400 connections each way (default 15)
  --help        this text
`;

/** Runs the bench. @returns the exit status. Rejects with TypeError for a command line that is wrong. */
export async function benchPath(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      services: { type: "string", default: "10000" },
      rounds: { type: "string", default: "15" },
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
  const results = await withWorker({ layout: "Flat", services }, (flat) =>
    withWorker({ layout: "Compatible", services }, async (compatible) => {
      const all: { readonly flat: PathRound; readonly compatible: PathRound }[] = [];
      for (let round = 0; round < rounds; round += 1) {
        // Each is first in half of the rounds.
        const isFlatFirst = round % 2 === 0;
        const early = isFlatFirst ? await flat() : undefined;
        const second = await compatible();
        all.push({ flat: early ?? (await flat()), compatible: second });
      }
      return all;
    }),
  );
  const part = (pick: (round: (typeof results)[number]) => number): string => median(results.map(pick)).toFixed(2);
  const us = (pick: (round: (typeof results)[number]) => number): string => median(results.map(pick)).toFixed(0);
  console.log(
    table(
      [`a connection, ${services} services`, "direct", "flat", "compatible", "flat : compatible"],
      [
        [
          "processor time, µs",
          us(({ flat }) => flat.direct.cpuUs),
          us(({ flat }) => flat.service.cpuUs),
          us(({ compatible }) => compatible.service.cpuUs),
          "",
        ],
        [
          "  of a direct one",
          "1",
          part(({ flat }) => flat.service.cpuUs / flat.direct.cpuUs),
          part(({ compatible }) => compatible.service.cpuUs / compatible.direct.cpuUs),
          part(
            ({ flat, compatible }) =>
              flat.service.cpuUs / flat.direct.cpuUs / (compatible.service.cpuUs / compatible.direct.cpuUs),
          ),
        ],
        [
          "until connected, p50, of a direct one",
          "1",
          part(({ flat }) => flat.service.p50Us / flat.direct.p50Us),
          part(({ compatible }) => compatible.service.p50Us / compatible.direct.p50Us),
          part(
            ({ flat, compatible }) =>
              flat.service.p50Us / flat.direct.p50Us / (compatible.service.p50Us / compatible.direct.p50Us),
          ),
        ],
      ],
    ),
  );
  return 0;
}

/** Starts a worker that has its cluster in the kernel when `work` begins; it measures a round whenever it is asked to. */
async function withWorker<T>(task: PathTask, work: (round: () => Promise<PathRound>) => Promise<T>): Promise<T> {
  return await withNamespace(async ({ name }) => {
    const words = ["netns", "exec", name, process.execPath, WORKER, JSON.stringify(task)];
    const child = spawn("ip", words, { stdio: ["pipe", "pipe", "inherit"] });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const next = async (): Promise<string> => {
      const { value, done } = await lines.next();
      if (done === true) throw new Error(`the worker of the layout ${task.layout} ended`);
      return value;
    };
    try {
      await next();
      return await work(async () => {
        child.stdin.write("\n");
        return JSON.parse(await next());
      });
    } finally {
      signalChild(child);
    }
  });
}
