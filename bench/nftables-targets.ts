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
const LARGEST = 30_000;

export interface Verdict {
  readonly passed: boolean;
  readonly text: string;
}

/** Targets for what was not measured are left out. What nft was cut off at counts as slow. */
export function judgeNftables(results: readonly NftablesFigures[]): Verdict[] {
  return [...results.flatMap(judgeSize), ...judgeGrowth(results)];
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
  const small = results.find(({ services }) => services === SMALLEST)?.changes;
  const large = results.find(({ services }) => services === LARGEST)?.changes;
  if (small === undefined || large === undefined) return [];
  const growth = large.one.p50 / small.one.p50;
  const own = large.oneOwn.p50 / small.oneOwn.p50;
  const sizes = `at ${LARGEST} services as at ${SMALLEST}, ${GROWTH} × wanted`;
  return [
    { passed: own <= GROWTH, text: `outside of the kernel one change costs ${own.toFixed(1)} × as much ${sizes}` },
    { passed: growth <= GROWTH, text: `one change costs ${growth.toFixed(1)} × as much ${sizes}` },
  ];
}
