/**
 * `npm run bench -- nftables`: what the nftables mode costs by size, next to `nft -f` doing the same in the same run. See
 * docs/performance.md.
 */
import { LAYOUT_NAMES, type LayoutName } from "../src/dataplane/nftables/layout-name.ts";
import type { Burst } from "./burst.ts";
import type { Bench, Given } from "./driver.ts";
import { figuresTable, fixed, judgeFigures, megabytes, ms, type Row, type Spread, type Verdict } from "./table.ts";
import { inWorker } from "./workers.ts";

/** What can be measured by itself; the first load always is. */
const PARTS = {
  changes: "one endpoint, a hundred, a new service; and what the kernel takes for one endpoint at least",
  burst: "changes at a steady rate",
  healing: "damage that other programs do",
  upstream: "nft -f of such changes, and the listing that upstream makes before each sync",
  load: "what the kernel takes for the batches of the first load at least, and nft -f of the whole table",
} as const;
type Part = keyof typeof PARTS;
/** What is measured of the flat layout; upstream has nothing like it. */
const FLAT_PARTS: readonly string[] = ["changes", "burst", "load"];
/** Changes times services: what keeps the largest size to a minute. */
const CHANGES_LIMIT = 3_000_000;

export interface NftablesTask {
  readonly layout: LayoutName;
  readonly services: number;
  readonly endpointsEach: number;
  readonly parts: readonly Part[];
  /** Repetitions of a one-endpoint change, and of the same with `nft -f`. */
  readonly changes: number;
  readonly nftChanges: number;
  readonly burstSeconds: number;
  readonly burstRate: number;
  /** Repetitions of each kind of damage. */
  readonly trials: number;
  /** For each run of `nft`. */
  readonly limitMs: number;
}

/** Times are milliseconds, memory megabytes. */
export interface LoadFigures {
  /** From an empty namespace to the committed table. */
  readonly loadMs: number;
  /** Its batches made beforehand and only sent. */
  readonly sentMs?: number;
  /** `nft -f` of the whole table. */
  readonly nftLoadMs?: number | undefined;
  /** Longest that a health request took meanwhile. */
  readonly healthMaxMs: number;
  /** Longest that the event loop did not turn, in processor time: without waiting for a processor. */
  readonly longestTurnMs: number;
  /** Resident before the backend had done anything (the program and the model), at most, and afterwards. */
  readonly modelMb: number;
  readonly peakMb: number;
  readonly settledMb: number;
  /** A new process over the same table, and the transactions that it made. */
  readonly restartMs: number;
  readonly restartWrites: number;
}

export interface ChangeFigures {
  /** From the event to the commit. */
  readonly one: Spread;
  /** What of that was ours: before the batch was sent, and after it was answered. */
  readonly own: Spread;
  /** Mean processor time, of all threads: hardly depends on what else the machine is doing. */
  readonly cpuMs: number;
  /** The batch made beforehand and sent at once, as bytes over a socket: what the kernel takes at least. */
  readonly floor: Spread;
  readonly floorCpuMs: number;
  readonly added: Spread;
  readonly hundred: Spread;
}

/** By the `nft` program; what was cut off is undefined. */
export interface UpstreamFigures {
  readonly one: Spread | undefined;
  readonly hundred: Spread | undefined;
  readonly added: Spread | undefined;
  /** `nft --json --terse list table`, which upstream runs at the start of every sync. */
  readonly listing: Spread;
  readonly oneCpuMs: number;
  readonly listingCpuMs: number;
}

export interface NftablesFigures {
  readonly layout: LayoutName;
  readonly services: number;
  readonly load: LoadFigures;
  readonly changes?: ChangeFigures;
  readonly burst?: Burst;
  /** The seconds of the same stream before, in which the engine still compiles. */
  readonly burstBefore?: Burst;
  /** From another program's commit to the commit of the repair, for each kind of damage. */
  readonly healing?: Readonly<Record<string, Spread>>;
  readonly upstream?: UpstreamFigures;
}

export const bench: Bench = {
  name: "nftables",
  about: `Measures the nftables mode against the nft program of this machine, in throw-away network namespaces. Needs root.
The first load and a restart are always measured.`,
  parts: PARTS,
  options: {
    quick: { help: "few repetitions; under half a minute" },
    sizes: { value: "N,…", initial: "100,1000,10000,30000", quick: "100,1000", help: "services" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each service" },
    burst: { value: "SECONDS", initial: "30", quick: "3", help: "of changes at a steady rate" },
    rate: { value: "N", initial: "1000", help: "of them a second" },
    layout: {
      value: "NAME",
      initial: "Compatible",
      help: `or Flat, of which only ${FLAT_PARTS.join(", ")} are measured`,
    },
    limit: { value: "SECONDS", initial: "300", help: "for every run of nft" },
  },
  async run(given) {
    const results: NftablesFigures[] = [];
    for (const task of tasksOf(given)) {
      process.stderr.write(`measuring ${task.services} services × ${task.endpointsEach} endpoints…\n`);
      results.push(await inWorker("nftables", task));
    }
    console.log(nftablesTable(results));
    return { verdicts: judgeNftables(results), figures: { results } };
  },
  async worker(task: NftablesTask) {
    const { measureNftables } = await import("./nftables-worker.ts");
    return await measureNftables(task);
  },
};

function tasksOf(given: Given): readonly NftablesTask[] {
  const layout = given.oneOf("layout", LAYOUT_NAMES);
  const isFlat = layout === "Flat";
  const wanted = Object.keys(PARTS).filter((part) => given.wants(part) && (!isFlat || FLAT_PARTS.includes(part)));
  const quick = given.isOn("quick");
  return given.wholes("sizes").map(
    (services): NftablesTask => ({
      ...{ layout, services, endpointsEach: given.whole("endpoints"), parts: wanted as Part[] }, // its keys
      changes: quick ? 100 : isFlat ? 500 : Math.min(500, Math.ceil(CHANGES_LIMIT / services)),
      ...{ nftChanges: quick ? 3 : 5, trials: quick ? 10 : 50 },
      ...{ burstSeconds: given.whole("burst"), burstRate: given.whole("rate"), limitMs: 1000 * given.whole("limit") },
    }),
  );
}

/** What is wanted of the flat layout (issues 12, 31), and of the compatible one at 10,000 services (issue 4). */
const flat =
  (limit: number | Readonly<Record<number, number>>) =>
  ({ layout, services }: NftablesFigures): number | undefined =>
    layout !== "Flat" ? undefined : typeof limit === "number" ? limit : limit[services];
const atReference = (limit: number, flatLimit?: number) => (figures: NftablesFigures) =>
  flatLimit === undefined || figures.layout !== "Flat" ? (figures.services === 10_000 ? limit : undefined) : flatLimit;

const part = (of: number | undefined, than: number | undefined): number | undefined =>
  of === undefined || than === undefined ? undefined : of / than;

const syncOf = (upstream: UpstreamFigures | undefined): number | undefined =>
  upstream?.one && upstream.one.p50 + upstream.listing.p50;

const DAMAGED = [
  "rules of a service deleted",
  "a foreign rule in a service's chain",
  "an element deleted",
  "rules of a fixed chain deleted",
  "a base chain deleted",
] as const;

const us = fixed(0);
const ROWS: readonly Row<NftablesFigures>[] = [
  ["one endpoint changed, p50 / p99", ({ changes }) => changes?.one, ms, atReference(10, 0.5)],
  ["  of that outside of the kernel", ({ changes }) => changes?.own],
  ["  the floor: the same batch only sent", ({ changes }) => changes?.floor],
  ["  of the floor", ({ changes }) => part(changes?.one.p50, changes?.floor.p50), fixed(2)],
  ["  nft -f of what upstream sends", ({ upstream }) => upstream?.one],
  [
    "  ours, of nft -f",
    ({ changes, upstream }) => part(changes?.one.p50, upstream?.one?.p50),
    fixed(4),
    atReference(0.01),
  ],
  ["  the listing that upstream makes before it", ({ upstream }) => upstream?.listing],
  ["  ours, of both", ({ changes, upstream }) => part(changes?.one.p50, syncOf(upstream)), fixed(4), atReference(0.01)],
  ["the same in processor time: ours, mean", ({ changes }) => changes?.cpuMs],
  ["  the floor", ({ changes }) => changes?.floorCpuMs],
  ["  nft -f", ({ upstream }) => upstream?.oneCpuMs],
  ["  the listing", ({ upstream }) => upstream?.listingCpuMs],
  ["a service added, p50 / p99", ({ changes }) => changes?.added, ms, flat(0.5)],
  ["  nft -f", ({ upstream }) => upstream?.added],
  ["100 services changed in one sync, p50 / p99", ({ changes }) => changes?.hundred],
  ["  nft -f", ({ upstream }) => upstream?.hundred],
  ["changes at the rate, latency p50 / p99", ({ burst }) => burst?.latency, ms, flat(5)],
  ["  p99", ({ burst }) => burst?.latency.p99, ms, flat(50)],
  ["  changes in a sync, mean", ({ burst }) => burst?.changesInSync, fixed(1)],
  ["  CPU, part of a core", ({ burst }) => burst?.cpuShare, fixed(2)],
  ["  CPU of a change at the rate, µs", ({ burst }) => burst?.cpuUs, us, flat(150)],
  ["  and of the bench's own timer, not counted", ({ burst }) => burst?.timerUs, us],
  ["  CPU of a change in the 10 s before, while the engine compiles", ({ burstBefore }) => burstBefore?.cpuUs, us],
  ...DAMAGED.map(
    (kind): Row<NftablesFigures> => [`healing, ${kind}, p50 / p99`, ({ healing }) => healing?.[kind], ms, 100],
  ),
  ["initial load", ({ load }) => load.loadMs, ms, flat({ 30000: 4_000, 100000: 12_000 })],
  ["  nft -f", ({ load }) => load.nftLoadMs],
  ["  ours, of nft -f", ({ load }) => part(load.loadMs, load.nftLoadMs), fixed(2), 1],
  ["  its batches only sent", ({ load }) => load.sentMs],
  [
    "  ours, of those",
    ({ load }) => part(load.loadMs, load.sentMs),
    fixed(2),
    (one) => (one.services < 5_000 ? undefined : flat(1.3)(one)),
  ],
  ["  slowest health request meanwhile", ({ load }) => load.healthMaxMs, ms, 50],
  ["  longest turn of the event loop, processor time", ({ load }) => load.longestTurnMs],
  ["restart with nothing changed", ({ load }) => load.restartMs],
  ["  transactions of a restart", ({ load }) => load.restartWrites, us, 0],
  ["resident MB: before", ({ load }) => load.modelMb, megabytes],
  ["  peak", ({ load }) => load.peakMb, megabytes],
  ["  resident afterwards", ({ load }) => load.settledMb, megabytes, flat({ 30000: 250 })],
];

/** What the smallest and the largest cluster of a run may differ by in the cost of one change. */
const GROWTH = 1.5;
const SMALLEST = 100;
const LARGEST: readonly number[] = [30_000, 100_000];

const columnsOf = (results: readonly NftablesFigures[]) => results.map(({ services }) => `${services} services`);

export function nftablesTable(results: readonly NftablesFigures[]): string {
  return figuresTable("milliseconds", columnsOf(results), results, ROWS);
}

/** Targets for what was not measured, or was cut off, are left out. */
export function judgeNftables(results: readonly NftablesFigures[]): readonly Verdict[] {
  return [...judgeFigures(columnsOf(results), results, ROWS), ...judgeGrowth(results)];
}

function judgeGrowth(results: readonly NftablesFigures[]): readonly Verdict[] {
  const small = results.find(({ services }) => services === SMALLEST)?.changes;
  const large = results.findLast(({ services }) => LARGEST.includes(services));
  if (small === undefined || large?.changes === undefined) return [];
  const growths = { "outside of the kernel one change": "own", "one change": "one" } as const;
  const { changes } = large;
  return Object.entries(growths).map(([what, figure]) => {
    const growth = changes[figure].p50 / small[figure].p50;
    const text = `${what} costs ${growth.toFixed(1)} × as much at ${large.services} services as at ${SMALLEST}, ${GROWTH} × wanted`;
    return { passed: growth <= GROWTH, text };
  });
}
