/** The targets of the nftables mode, judged on measured figures. Pure. */
import type { NftablesFigures, Spread } from "./nftables-figures.ts";
import { megabytes, ms, table } from "./table.ts";

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

const CUT_OFF = "cut off";
const NOT_MEASURED = "–";

function pair(spread: Spread | undefined): string {
  return spread === undefined ? CUT_OFF : `${ms(spread.p50)} / ${ms(spread.p99)}`;
}

function times(of: number | undefined, than: number | undefined): string {
  if (of === undefined || than === undefined) return NOT_MEASURED;
  const factor = of / than;
  return `${factor.toFixed(factor < 10 ? 1 : 0)} ×`;
}

/** Rows that nothing was measured for are left out. */
export function nftablesTable(results: readonly NftablesFigures[]): string {
  const rows: string[][] = [];
  const row = (title: string, cell: (figures: NftablesFigures) => string | undefined): void => {
    const cells = results.map((figures) => cell(figures) ?? NOT_MEASURED);
    if (cells.some((text) => text !== NOT_MEASURED)) rows.push([title, ...cells]);
  };
  const upstreamSync = ({ upstream }: NftablesFigures) => upstream?.one && upstream.one.p50 + upstream.listing.p50;
  row("one endpoint changed, event to commit, p50 / p99", ({ changes }) => changes && pair(changes.one));
  row("  of that outside of the kernel", ({ changes }) => changes && pair(changes.oneOwn));
  row("  floor: the same batch made beforehand, only sent", ({ changes }) => changes && pair(changes.floor.one));
  row("  ours takes, of the floor", ({ changes }) => times(changes?.one.p50, changes?.floor.one.p50));
  row("  floor: a rule that has the table checked, no set", ({ changes }) => changes && pair(changes.floor.checked));
  row("  floor: a rule of nothing, led to by nothing", ({ changes }) => changes && pair(changes.floor.trivial));
  row("  nft -f of what upstream sends", ({ upstream }) => upstream && pair(upstream.one));
  row("  nft -f takes, of ours", ({ upstream, changes }) => times(upstream?.one?.p50, changes?.one.p50));
  row("  nft -f takes, of the floor", ({ upstream, changes }) => times(upstream?.one?.p50, changes?.floor.one.p50));
  row("  the listing that upstream makes before it", ({ upstream }) => upstream && pair(upstream.listing));
  row("  upstream's sync (both) takes, of ours", (figures) => times(upstreamSync(figures), figures.changes?.one.p50));
  row("the same in processor time: ours, mean", ({ changes }) => changes && ms(changes.oneCpuMs));
  row("  the floor", ({ changes }) => changes && ms(changes.floor.oneCpuMs));
  row("  nft -f", ({ upstream }) => upstream && ms(upstream.oneCpuMs));
  row("  the listing", ({ upstream }) => upstream && ms(upstream.listingCpuMs));
  row("  ours takes, of the floor", ({ changes }) => times(changes?.oneCpuMs, changes?.floor.oneCpuMs));
  row("  nft -f takes, of ours", ({ upstream, changes }) => times(upstream?.oneCpuMs, changes?.oneCpuMs));
  row("  upstream's sync (both) takes, of ours", ({ upstream, changes }) =>
    times(upstream && upstream.oneCpuMs + upstream.listingCpuMs, changes?.oneCpuMs),
  );
  row("a service added, p50 / p99", ({ changes }) => changes && pair(changes.serviceAdded));
  row("  nft -f", ({ upstream }) => upstream && pair(upstream.serviceAdded));
  row("100 services changed in one sync, p50 / p99", ({ changes }) => changes && pair(changes.hundred));
  row("  nft -f", ({ upstream }) => upstream && pair(upstream.hundred));
  row("changes at the rate, latency p50 / p99", ({ burst }) => burst && pair(burst.latency));
  row("  changes in a sync, mean", ({ burst }) => burst && (burst.events / burst.syncs).toFixed(1));
  row("  CPU, part of a core", ({ burst }) => burst && `${(burst.cpuShare * 100).toFixed(0)} %`);
  row("  CPU of a change, µs", ({ burst }) => burst && ((1e6 * burst.cpuSeconds) / burst.events).toFixed(0));
  row(
    "  and of the bench's own timer, not counted",
    ({ burst }) => burst && ((1e6 * burst.timerCpuSeconds) / burst.events).toFixed(0),
  );
  row(
    "  CPU of a change in the 10 s before, while the engine compiles",
    ({ burstBefore }) => burstBefore && ((1e6 * burstBefore.cpuSeconds) / burstBefore.events).toFixed(0),
  );
  const kinds = results.find(({ healing }) => healing !== undefined)?.healing?.kinds ?? [];
  for (const { kind } of kinds) {
    row(`healing, ${kind}, p50 / p99`, ({ healing }) => {
      const found = healing?.kinds.find((one) => one.kind === kind);
      return found && pair(found.time);
    });
  }
  row("manifest to first connection, p50 / p99", ({ connection }) => connection && pair(connection.manifest));
  row("API event to first connection, p50 / p99", ({ connection }) => connection && pair(connection.api));
  row("initial load", ({ load }) => ms(load.loadMs));
  row("  nft -f", ({ upstreamLoad }) => {
    if (upstreamLoad === undefined) return undefined;
    return upstreamLoad.loadMs === undefined ? CUT_OFF : ms(upstreamLoad.loadMs);
  });
  row("  slowest health request meanwhile", ({ load }) => `${ms(load.healthMaxMs)} of ${load.healthRequests}`);
  row("  longest turn of the event loop, processor time", ({ load }) => ms(load.longestTurnMs));
  row("restart with nothing changed", ({ load }) => ms(load.restartMs));
  row("  transactions", ({ load }) => String(load.restartWrites));
  row("resident MB: before, peak, settled", ({ load: { modelMb, peakMb, settledMb } }) =>
    [modelMb, peakMb, settledMb].map(megabytes).join(" / "),
  );
  return table(["milliseconds", ...results.map(({ services }) => `${services} services`)], rows);
}
