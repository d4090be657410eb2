/**
 * `npm run bench -- userspace`: the cost of the proxy carrying the bytes itself, next to a direct connection, to a
 * plain `socket.pipe` and to the iptables mode, in one run. See docs/performance.md.
 */
import type { Bench } from "./driver.ts";
import { fixed, median, type Spread, table, type Verdict } from "./table.ts";
import { TrafficNetwork } from "./traffic-network.ts";

/** The compared paths from a client to an endpoint. */
export const WAYS = ["direct", "pipe", "userspace", "iptables"] as const;
export type Way = (typeof WAYS)[number];

/**
 * What a client does: `connections`, one after the other in 32 lanes, each with one byte in both directions; `download` and
 * `upload`, four connections at full speed; `answers`, 100 bytes in both directions over one connection, one at a time.
 */
export const LOADS = ["connections", "download", "upload", "answers"] as const;
export type Load = (typeof LOADS)[number];

/** One load over one path. */
export interface TrafficFigures {
  readonly seconds: number;
  /** Connections, bytes or answers. */
  readonly count: number;
  readonly latencyMs: Spread;
  /** Of the process between client and endpoint; 0 without one. */
  readonly proxyCpuMs: number;
  /** Of client, proxy and endpoint: the kernel's work is counted in whichever it was done for. */
  readonly allCpuMs: number;
}

/** The rounds of a load, by path. */
export type TrafficResults = Readonly<Record<Load, Readonly<Record<Way, readonly TrafficFigures[]>>>>;

/** Relative to what a proxy of ten lines carries: the lower limit, and the target (issue 6). */
const FLOOR = 0.5;
const WANTED = 0.9;

export const bench: Bench = {
  name: "userspace",
  about:
    "Measures connections, throughput and latency through the userspace mode, in throw-away network namespaces. Needs root.",
  options: {
    quick: { help: "one short round; half a minute" },
    rounds: { value: "N", initial: "5", quick: "1", help: "of every load over every way, in turns" },
    seconds: { value: "N", initial: "1.5", quick: "0.5", help: "for each" },
  },
  async run(given) {
    const results = await measureAll(given.whole("rounds"), given.positive("seconds"));
    console.log(trafficTable(results));
    return { verdicts: judgeTraffic(results), figures: { results } };
  },
};

async function measureAll(rounds: number, seconds: number): Promise<TrafficResults> {
  const results = Object.fromEntries(
    LOADS.map((load) => [load, Object.fromEntries(WAYS.map((way) => [way, []]))]),
  ) as unknown as Record<Load, Record<Way, TrafficFigures[]>>;
  const network = await TrafficNetwork.create();
  try {
    for (let round = 1; round <= rounds; round++) {
      for (const load of LOADS) {
        process.stderr.write(`round ${round} of ${rounds}: ${load}…\n`);
        for (const way of WAYS) results[load][way].push(await network.measure(way, load, seconds));
      }
    }
  } finally {
    await network.destroy();
  }
  return results;
}

type Measure = (figures: TrafficFigures) => number;
const perSecond: Measure = ({ count, seconds }) => count / seconds;
/** Milliseconds per thousand connections, or seconds per billion bytes. */
const cpuPer =
  (unit: number, part: "proxyCpuMs" | "allCpuMs"): Measure =>
  (figures) =>
    (figures[part] / figures.count) * unit;
/** Seconds per gigabyte, from milliseconds per byte. */
const GIGABYTE = 1e9 / 1000;

type TrafficRow = readonly [title: string, load: Load, measure: Measure, digits: number];
const ROWS: readonly TrafficRow[] = [
  ["connections a second", "connections", perSecond, 0],
  ["  proxy's CPU, ms for 1000", "connections", cpuPer(1000, "proxyCpuMs"), 0],
  ["  everybody's CPU, ms for 1000", "connections", cpuPer(1000, "allCpuMs"), 0],
  ...(["download", "upload"] as const).flatMap((load): TrafficRow[] => [
    [load === "download" ? "to the client, MB/s" : "from the client, MB/s", load, (one) => perSecond(one) / 1e6, 0],
    ["  proxy's CPU, s for 1 GB", load, cpuPer(GIGABYTE, "proxyCpuMs"), 2],
    ["  everybody's CPU, s for 1 GB", load, cpuPer(GIGABYTE, "allCpuMs"), 2],
  ]),
  ["answer on an open connection, µs, p50", "answers", ({ latencyMs }) => 1000 * latencyMs.p50, 0],
  ["  p99", "answers", ({ latencyMs }) => 1000 * latencyMs.p99, 0],
];

const TITLES: Readonly<Record<Way, string>> = {
  direct: "direct",
  pipe: "socket.pipe",
  userspace: "userspace mode",
  iptables: "iptables mode",
};

/** A column of medians for each path. */
export function trafficTable(results: TrafficResults): string {
  const rows = ROWS.map(([title, load, measure, digits]) => [
    title,
    ...WAYS.map((way) => fixed(digits)(median(results[load][way].map(measure)))),
  ]);
  return table(["", ...WAYS.map((way) => TITLES[way])], rows);
}

/** How the mode compares with a plain pipe, round by round: the machine is equally busy for both. */
export function judgeTraffic(results: TrafficResults): readonly Verdict[] {
  const percent = (part: number): string => `${(100 * part).toFixed(0)} %`;
  const verdicts = (["download", "upload", "connections"] as const).map((load) => {
    const pipe = results[load].pipe.map(perSecond);
    const ratios = results[load].userspace.map((figures, round) => perSecond(figures) / (pipe[round] ?? Infinity));
    const part = median(ratios);
    const text = `${load}: ${percent(part)} of socket.pipe, ${percent(WANTED)} wanted, ${percent(FLOOR)} the least`;
    return { passed: part >= FLOOR, text };
  });
  const isComplete = LOADS.every((load) => WAYS.every((way) => results[load][way].every(({ count }) => count > 0)));
  return [...verdicts, { passed: isComplete, text: "every load went every way" }];
}
