/**
 * `npm run bench -- status`: how soon a daemon's inspect socket answers while changes come at a steady rate, what `kube-proxy status`
 * takes in all beside the start of Node.js alone, and what the whole service table costs the daemon.
 */
import { fileURLToPath } from "node:url";
import { type Bench, type Given, type Outcome, workerFigures } from "./driver.ts";
import { ms, table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./status-worker.ts", import.meta.url));
/** Wanted of an answer, while there are changes. */
const ANSWER_MS = 50;

export const bench: Bench = {
  name: "status",
  about:
    "The inspect socket of a daemon (nftables mode, flat layout) while endpoints change. Needs root and `npm run build`.",
  options: {
    sizes: { value: "N,…", initial: "1000,10000", help: "services" },
    rate: { value: "N", initial: "1000", help: "changes a second" },
    seconds: { value: "N", initial: "10", help: "for each size" },
  },
  run: measure,
};

async function measure(given: Given): Promise<Outcome> {
  const results: StatusFigures[] = [];
  for (const services of given.wholes("sizes")) {
    const task: StatusTask = { services, rate: given.whole("rate"), seconds: given.whole("seconds") };
    results.push(await workerFigures({ script: WORKER, task }));
  }
  console.log(
    table(
      [
        "",
        "answers",
        "p50, ms",
        "p99, ms",
        "at most, ms",
        "change p99, ms",
        "command, cpu ms",
        "node alone, cpu ms",
        "table, ms",
      ],
      results.map((one) => [
        `${one.services} services, ${one.rate} changes/s`,
        String(one.answers),
        ...[one.p50Ms, one.p99Ms, one.maxMs, one.changeP99Ms, one.commandCpuMs, one.nodeCpuMs, one.tableMs].map(ms),
      ]),
    ),
  );
  const verdicts = results.map(({ services, p99Ms }) => {
    const text = `${services} services: status is answered in ${ms(p99Ms)} ms (p99), ${ANSWER_MS} ms wanted`;
    return { passed: p99Ms <= ANSWER_MS, text };
  });
  return { verdicts, figures: { results } };
}

export interface StatusTask {
  readonly services: number;
  /** Changes a second. */
  readonly rate: number;
  readonly seconds: number;
}

export interface StatusFigures extends StatusTask {
  readonly answers: number;
  /** From the question to the answer, each over a connection of its own, as seen by another process. */
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  /** Of the changes meanwhile. */
  readonly changeP99Ms: number;
  /** Processor time of `kube-proxy status`, and of Node.js that does nothing. */
  readonly commandCpuMs: number;
  readonly nodeCpuMs: number;
  /** Until the whole service table was read, while nothing changed. */
  readonly tableMs: number;
}
