/**
 * `npm run bench -- flows`: what `kube-proxy flows --watch` costs for each connection and what it loses, and how soon `kube-proxy flows
 * SERVICE` answers over a table that is full of others'.
 */
import { fileURLToPath } from "node:url";
import { type Bench, type Given, type Outcome, workerFigures } from "./driver.ts";
import { ms, table } from "./table.ts";

const WORKER = fileURLToPath(new URL("./flows-worker.ts", import.meta.url));
/** Wanted. */
const CPU_MICROSECONDS = 10;
/** "Nothing", as far as a busy machine lets it be seen: other programs cost a process that rests as much. */
const UNWATCHED_MICROSECONDS = 0.1;
const LOST_PART = 0.001;
const ANSWER_MS = 2_000;
const GROWTH_MEGABYTES = 30;

export const bench: Bench = {
  name: "flows",
  about: "`kube-proxy flows` beside new connections of UDP, and over a large table. Needs root, nft and conntrack.",
  options: {
    rate: { value: "N", initial: "10000", help: "new connections a second" },
    seconds: { value: "N", initial: "60", quick: "5", help: "so long" },
    services: { value: "N", initial: "2000", help: "Services that they go to" },
    entries: {
      value: "N",
      initial: "500000",
      quick: "20000",
      help: "in the table, as far as this machine's limit allows",
    },
    against: { value: "FILE", help: "bin/kube-proxy of another checkout, which watches the same connections" },
    quick: { help: "smaller numbers" },
  },
  run: measure,
};

export interface FlowsTask {
  readonly rate: number;
  readonly seconds: number;
  readonly services: number;
  readonly entries: number;
  /** Another program that is measured beside this one. */
  readonly against: string | undefined;
}

/** Of `flows --watch`. */
export interface Watched {
  /** Told to begin. */
  readonly told: number;
  /** Of the command, its start left out, for each connection that began and ended or is still tracked. */
  readonly cpuMicroseconds: number;
  /** Of the command, from its first line on. */
  readonly growthMegabytes: number;
}

export interface FlowsFigures extends Watched {
  /** As the kernel counts them. */
  readonly made: number;
  readonly other: Watched | undefined;
  /** Of a daemon, for each of the same connections, while nothing watches: more than when there are none. */
  readonly unwatchedMicroseconds: number;
  readonly entries: number;
  /** Of `flows SERVICE`, its start included. */
  readonly answerMs: number;
  readonly answered: number;
}

async function measure(given: Given): Promise<Outcome> {
  const task: FlowsTask = {
    ...{ rate: given.whole("rate"), seconds: given.whole("seconds") },
    ...{ services: given.whole("services"), entries: given.whole("entries"), against: given.optional("against") },
  };
  const found: FlowsFigures = await workerFigures({ script: WORKER, task, asDaemon: false });
  const { made, told, cpuMicroseconds, growthMegabytes, other, entries, answerMs, answered, unwatchedMicroseconds } =
    found;
  const lost = 1 - told / made;
  const perSecond = Math.round(made / task.seconds);
  console.log(
    table(
      ["connections", "a second", "told", "cpu, µs each", "unwatched, µs", "grown, MB", "entries", "flows SERVICE, ms"],
      [
        [
          String(made),
          String(perSecond),
          String(told),
          cpuMicroseconds.toFixed(1),
          unwatchedMicroseconds.toFixed(2),
          growthMegabytes.toFixed(0),
          String(entries),
          ms(answerMs),
        ],
      ],
    ),
  );
  if (other !== undefined) {
    const ratio = (cpuMicroseconds / other.cpuMicroseconds).toFixed(2);
    console.log(
      `the other told ${other.told}, grew by ${other.growthMegabytes.toFixed(0)} MB, at ${other.cpuMicroseconds.toFixed(1)} µs each (this one: ${ratio} of it)`,
    );
  }
  return {
    figures: { task, ...found },
    verdicts: [
      {
        passed: perSecond >= task.rate * 0.95,
        text: `${perSecond} connections a second were made, ${task.rate} wanted`,
      },
      {
        passed: cpuMicroseconds <= CPU_MICROSECONDS,
        text: `${cpuMicroseconds.toFixed(1)} µs of processor time for a connection, ${CPU_MICROSECONDS} wanted`,
      },
      {
        passed: unwatchedMicroseconds <= UNWATCHED_MICROSECONDS,
        text: `${unwatchedMicroseconds.toFixed(2)} µs of a daemon's without the command, 0 wanted`,
      },
      { passed: lost <= LOST_PART, text: `${(lost * 100).toFixed(3)} % not told, ${LOST_PART * 100} % wanted` },
      {
        passed: growthMegabytes <= GROWTH_MEGABYTES,
        text: `the command grew by ${growthMegabytes.toFixed(0)} MB, ${GROWTH_MEGABYTES} wanted`,
      },
      { passed: entries >= task.entries, text: `${entries} entries in the table, ${task.entries} wanted` },
      {
        passed: answerMs <= ANSWER_MS && answered > 0,
        text: `flows SERVICE answers ${answered} in ${ms(answerMs)} ms, ${ANSWER_MS} wanted`,
      },
    ],
  };
}
