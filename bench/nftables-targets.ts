/** The targets of the nftables mode, judged on measured figures. Pure. */
import type { NftablesFigures } from "./nftables-figures.ts";

const REFERENCE = 10_000;
const ONE_CHANGE_P50_MS = 10;
const LEAST_FACTOR = 100;
const HEALTH_MS = 50;
const HEALING_MS = 100;
const CONNECTION_P50_MS = 50;
const CONNECTION_P99_MS = 200;
/** What the smallest and the largest cluster of a run may differ by in the cost of one change. */
const GROWTH = 1.5;
const SMALLEST = 100;
const LARGEST: readonly number[] = [30_000, 100_000];

export interface Verdict {
  readonly passed: boolean;
  readonly text: string;
}

/** Of the flat layout, issue 12. */
const FLAT = {
  changeMs: 0.5,
  loadMs: { 30000: 4_000, 100000: 12_000 } as Readonly<Record<number, number>>,
  residentMb: { 30000: 250 } as Readonly<Record<number, number>>,
  burstP50Ms: 5,
  burstP99Ms: 50,
  burstChangeUs: 150,
} as const;

/** Targets for what was not measured are left out. What nft was cut off at counts as slow. */
export function judgeNftables(results: readonly NftablesFigures[]): Verdict[] {
  return [...results.flatMap(judgeSize), ...results.flatMap(judgeFlatSize), ...judgeGrowth(results)];
}

/** At most so much is wanted of each. */
function judgeFlatSize({ layout, services, load, changes, burst }: NftablesFigures): Verdict[] {
  if (layout !== "Flat") return [];
  const limits: [what: string, value: number | undefined, limit: number | undefined, unit: string][] = [
    ["one endpoint changed, p50", changes?.one.p50, FLAT.changeMs, "ms"],
    ["a service added, p50", changes?.serviceAdded.p50, FLAT.changeMs, "ms"],
    ["initial load", load.loadMs, FLAT.loadMs[services], "ms"],
    ["resident afterwards", load.settledMb, FLAT.residentMb[services], "MB"],
    ["latency at the rate, p50", burst?.latency.p50, FLAT.burstP50Ms, "ms"],
    ["latency at the rate, p99", burst?.latency.p99, FLAT.burstP99Ms, "ms"],
    [
      "processor time of a change at the rate",
      burst && (1e6 * burst.cpuSeconds) / burst.events,
      FLAT.burstChangeUs,
      "µs",
    ],
  ];
  return limits.flatMap(([what, value, limit, unit]) => {
    if (value === undefined || limit === undefined) return [];
    const figure = value.toFixed(value < 10 ? 2 : 0);
    return [
      { passed: value <= limit, text: `${services} services: ${what}: ${figure} ${unit}, ${limit} ${unit} wanted` },
    ];
  });
}

function judgeSize(figures: NftablesFigures): Verdict[] {
  const { services, changes, upstream, upstreamLoad, load, healing, connection } = figures;
  const verdicts: Verdict[] = [];
  const judge = (passed: boolean, text: string): void =>
    void verdicts.push({ passed, text: `${services} services: ${text}` });
  if (services === REFERENCE && changes !== undefined) {
    const { p50 } = changes.one;
    judge(
      p50 <= ONE_CHANGE_P50_MS,
      `one endpoint changed in ${p50.toFixed(2)} ms (p50), ${ONE_CHANGE_P50_MS} ms wanted`,
    );
    if (upstream !== undefined) {
      const nftMs = upstream.one?.p50 ?? Number.POSITIVE_INFINITY;
      const times = (milliseconds: number): string => `${(milliseconds / p50).toFixed(0)} × as long for one change`;
      judge(nftMs >= LEAST_FACTOR * p50, `nft -f alone takes ${times(nftMs)}, ${LEAST_FACTOR} × wanted`);
      const syncMs = nftMs + upstream.listing.p50;
      judge(
        syncMs >= LEAST_FACTOR * p50,
        `nft -f and the listing before it, as upstream runs them, take ${times(syncMs)}, ${LEAST_FACTOR} × wanted`,
      );
    }
  }
  for (const { kind, time } of healing?.kinds ?? []) {
    judge(time.p50 <= HEALING_MS, `${kind}: healed in ${time.p50.toFixed(1)} ms (p50), ${HEALING_MS} ms wanted`);
  }
  if (connection !== undefined) {
    for (const [from, { p50, p99 }] of [
      ["the manifest", connection.manifest] as const,
      ["the API event", connection.api] as const,
    ]) {
      judge(
        p50 <= CONNECTION_P50_MS && p99 <= CONNECTION_P99_MS,
        `first connection ${p50.toFixed(0)} ms (p50) and ${p99.toFixed(0)} ms (p99) after ${from}, ${CONNECTION_P50_MS} and ${CONNECTION_P99_MS} ms wanted`,
      );
    }
  }
  if (upstreamLoad !== undefined) {
    const nftMs = upstreamLoad.loadMs ?? Number.POSITIVE_INFINITY;
    judge(load.loadMs <= nftMs, `initial load in ${load.loadMs.toFixed(0)} ms, nft -f takes ${nftMs.toFixed(0)} ms`);
  }
  judge(
    load.healthMaxMs <= HEALTH_MS,
    `health requests answered in ${load.healthMaxMs.toFixed(0)} ms at most during the initial load, ${HEALTH_MS} ms wanted (longest turn of the event loop: ${load.longestTurnMs.toFixed(0)} ms of processor time)`,
  );
  judge(load.restartWrites === 0, "a restart with nothing changed writes nothing");
  return verdicts;
}

function judgeGrowth(results: readonly NftablesFigures[]): Verdict[] {
  const small = results.find(({ services }) => services === SMALLEST);
  const large = results.findLast(({ services }) => LARGEST.includes(services));
  if (small?.changes === undefined || large?.changes === undefined) return [];
  const growth = large.changes.one.p50 / small.changes.one.p50;
  const own = large.changes.oneOwn.p50 / small.changes.oneOwn.p50;
  const sizes = `at ${large.services} services as at ${SMALLEST}, ${GROWTH} × wanted`;
  return [
    { passed: own <= GROWTH, text: `outside of the kernel one change costs ${own.toFixed(1)} × as much ${sizes}` },
    { passed: growth <= GROWTH, text: `one change costs ${growth.toFixed(1)} × as much ${sizes}` },
  ];
}
