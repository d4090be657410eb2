/** What the nftables mode shall reach, judged on measured figures. Pure. */
import type { NftablesFigures } from "./nftables-figures.ts";

const REFERENCE = 10_000;
const ONE_CHANGE_P50_MS = 10;
const LEAST_FACTOR = 100;
const DELAY_MS = 50;
/** What the smallest and the largest cluster of a run may differ by in the cost of one change. */
const GROWTH = 1.5;
const LARGEST = 30_000;

export interface Verdict {
  readonly passed: boolean;
  readonly text: string;
}

/** Targets for sizes that were not measured are left out. */
export function judgeNftables(results: readonly NftablesFigures[]): Verdict[] {
  const verdicts: Verdict[] = [];
  const judge = (passed: boolean, text: string): void => void verdicts.push({ passed, text });
  for (const figures of results) {
    const { services, oneChange, nftOneChange, nftListing, initialLoadMs, nftInitialLoadMs } = figures;
    if (services === REFERENCE) {
      judge(
        oneChange.p50 <= ONE_CHANGE_P50_MS,
        `${services} services: one endpoint changed in ${oneChange.p50.toFixed(2)} ms (p50), ${ONE_CHANGE_P50_MS} ms wanted`,
      );
      const nftMs = nftOneChange?.p50 ?? Number.POSITIVE_INFINITY;
      const times = (milliseconds: number): string =>
        `${(milliseconds / oneChange.p50).toFixed(0)} × as long for one change`;
      judge(
        nftMs >= LEAST_FACTOR * oneChange.p50,
        `${services} services: nft -f alone takes ${times(nftMs)}, ${LEAST_FACTOR} × wanted`,
      );
      const upstreamMs = nftMs + nftListing.p50;
      judge(
        upstreamMs >= LEAST_FACTOR * oneChange.p50,
        `${services} services: nft -f and the listing before it, as upstream runs them, take ${times(upstreamMs)}, ${LEAST_FACTOR} × wanted`,
      );
    }
    if (services >= REFERENCE) {
      const nftMs = nftInitialLoadMs ?? Number.POSITIVE_INFINITY;
      judge(
        initialLoadMs <= nftMs,
        `${services} services: initial load in ${initialLoadMs.toFixed(0)} ms, nft -f takes ${nftMs.toFixed(0)} ms`,
      );
    }
    judge(
      figures.initialDelayMs <= DELAY_MS,
      `${services} services: the event loop turned at least every ${figures.initialDelayMs.toFixed(0)} ms during the initial load, ${DELAY_MS} ms wanted`,
    );
    judge(figures.restartWrites === 0, `${services} services: a restart with nothing changed writes nothing`);
  }
  const small = results.find(({ services }) => services === 100);
  const large = results.find(({ services }) => services === LARGEST);
  if (small !== undefined && large !== undefined) {
    const growth = large.oneChange.p50 / small.oneChange.p50;
    const own = large.oneChangeOwn.p50 / small.oneChangeOwn.p50;
    judge(
      own <= GROWTH,
      `outside of the kernel one change costs ${own.toFixed(1)} × as much at ${LARGEST} services as at 100, ${GROWTH} × wanted`,
    );
    judge(
      growth <= GROWTH,
      `one change costs ${growth.toFixed(1)} × as much at ${LARGEST} services as at 100, ${GROWTH} × wanted`,
    );
  }
  return verdicts;
}
