/** The tables of a run. Pure. */
import { fullSyncOf, reportOf, reportsOf, type SizeResult, type SyncFigures } from "./figures.ts";
import type { RestoreTime } from "./iptables.ts";
import { median, megabytes, ms, size, table } from "./table.ts";

/** All tables of one back end. */
export function tablesOf(results: readonly SizeResult[], limitMs: number): string {
  const parts = [
    "Full sync, ms by the clock; medians. own: everything but iptables-restore. alone: iptables-restore fed the same text.",
    "cpu: processor time of our main thread, of the other tools, and of iptables-restore alone.",
    fullSyncs(results, limitMs),
    "",
    "Small changes, ms, medians.",
    smallChanges(results),
    "",
    "Memory, MB.",
    memory(results),
  ];
  const ends = results.flatMap(endsOf);
  if (ends.length > 0) parts.push("", ...ends);
  return parts.join("\n");
}

function fullSyncs(results: readonly SizeResult[], limitMs: number): string {
  const head = [
    "services",
    "",
    "sent",
    "tools",
    "plan",
    "payload",
    "write",
    "own",
    "restore",
    "alone",
    "own/alone",
    "sync",
    "cpu own",
    "tools",
    "alone",
    "own/alone",
  ];
  const rows = results.flatMap((result) => {
    const full = fullSyncOf(result);
    const restart = reportOf(result, "restart");
    return [
      ...(full === undefined ? [] : [fullSyncRow(result, "first", full, limitMs)]),
      ...(restart === undefined ? [] : [fullSyncRow(result, "restart", restart, undefined)]),
    ];
  });
  return table(head, rows);
}

interface FullSyncReport {
  readonly figures: SyncFigures;
  readonly isPretended?: boolean;
}

/** @param limitMs undefined where the time alone, in an empty namespace, is nothing to compare with. */
function fullSyncRow(result: SizeResult, what: string, report: FullSyncReport, limitMs: number | undefined): string[] {
  const { figures, isPretended: pretended = false } = report;
  const isCutOff = result.alone.length === 0;
  const alone = (pick: (time: RestoreTime) => number) => (isCutOff ? (limitMs ?? 0) : median(result.alone.map(pick)));
  const compared = (own: number, aloneMs: number) =>
    limitMs === undefined
      ? ["", ""]
      : [`${isCutOff ? "> " : ""}${ms(aloneMs)}`, `${isCutOff ? "< " : ""}${(own / aloneMs).toFixed(2)}`];
  return [
    String(result.services),
    what,
    size(figures.bytes),
    pretended ? "-" : ms(figures.otherToolsMs),
    ms(figures.planMs),
    ms(figures.payloadMs),
    ms(figures.writeCpuMs),
    ms(figures.ownMs),
    pretended ? "-" : ms(figures.restoreMs),
    ...compared(
      figures.ownMs,
      alone(({ wallMs }) => wallMs),
    ),
    pretended ? "-" : ms(figures.wallMs),
    ms(figures.ownCpuMs),
    pretended ? "-" : ms(figures.otherToolsCpuMs),
    ...compared(
      figures.ownCpuMs + figures.otherToolsCpuMs,
      alone(({ cpuMs }) => cpuMs),
    ),
  ];
}

function smallChanges(results: readonly SizeResult[]): string {
  const head = ["services", "change", "times", "sent", "model", "plan", "payload", "own", "own p90", "restore"];
  const rows = results.flatMap((result) =>
    [...reportsOf(result, "change"), ...reportsOf(result, "planning")].map((report) => {
      const { count, median: figures, ownP90Ms } = report.figures;
      return [
        String(result.services),
        report.step === "change" ? report.change : "planning only",
        String(count),
        size(figures.bytes),
        ms(figures.modelMs),
        ms(figures.planMs),
        ms(figures.payloadMs),
        ms(figures.ownMs),
        ms(ownP90Ms),
        report.step === "change" ? ms(figures.restoreMs) : "-",
      ];
    }),
  );
  return table(head, rows);
}

function memory(results: readonly SizeResult[]): string {
  const head = ["services", "start", "model", "peak in sync", "after sync", "settled", "heap settled", "after restart"];
  const rows = results.flatMap((result) => {
    const load = reportOf(result, "load");
    const full = reportOf(result, "full");
    if (load === undefined || full === undefined) return [];
    const restart = reportOf(result, "restart");
    return [
      [
        String(result.services),
        megabytes(load.before.rssMb),
        megabytes(load.after.rssMb),
        megabytes(full.after.peakMb),
        megabytes(full.after.rssMb),
        megabytes(full.settled.rssMb),
        full.settled.heapMb.toFixed(1),
        restart === undefined ? "" : megabytes(restart.after.rssMb),
      ],
    ];
  });
  return table(head, rows);
}

function endsOf(result: SizeResult): string[] {
  return result.reports.flatMap((report) =>
    report.step === "cut off" || report.step === "failed"
      ? [`${result.services} services: ${report.what} ${report.step}: ${report.reason}`]
      : [],
  );
}
