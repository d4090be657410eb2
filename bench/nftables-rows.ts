/** The figures of the nftables mode as a table with a column per size. Pure. */
import type { NftablesFigures, Spread } from "./nftables-figures.ts";
import { megabytes, ms, table } from "./table.ts";

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
