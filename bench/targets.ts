/** What the project promises about cost, judged by measurement. Pure. */
import { fullSyncOf, reportOf, type SizeResult } from "./figures.ts";
import { median } from "./table.ts";

/** Planning a one-endpoint change may cost this many times what it costs in the cheapest other size. */
export const PLANNING_GROWTH = 1.5;
/** Of the time of iptables-restore alone; processor time, so that a busy machine decides nothing. */
export const OWN_WORK_PART = 0.25;
/**
 * Judged from this many services on. Below, a first sync is mostly what does not grow: starting the other tools and an
 * engine that has not compiled anything yet, next to an iptables-restore of a few dozen milliseconds.
 */
export const OWN_WORK_FROM = 5000;

export interface Verdict {
  readonly passed: boolean;
  readonly text: string;
}

/** @param limitMs at which iptables-restore alone was cut off. */
export function judge(results: readonly SizeResult[], limitMs: number): Verdict[] {
  return [
    ...judgePlanning(results),
    ...results.flatMap((result) => judgeOwnWork(result, limitMs)),
    ...judgeEnds(results),
  ];
}

function judgePlanning(results: readonly SizeResult[]): Verdict[] {
  return ["legacy", "nft"].flatMap((backEnd) => {
    const plannings = results.flatMap((result) => {
      const report = result.backEnd === backEnd ? reportOf(result, "planning") : undefined;
      return report === undefined ? [] : [{ services: result.services, ms: report.figures.median.ownMs }];
    });
    const largest = plannings.reduce(
      (most, item) => (item.services > most.services ? item : most),
      plannings[0] ?? { services: 0, ms: 0 },
    );
    const others = plannings.filter((item) => item !== largest);
    if (others.length === 0) return [];
    const cheapest = others.reduce((least, item) => (item.ms < least.ms ? item : least));
    const growth = largest.ms / cheapest.ms;
    const text = `${backEnd}: planning a one-endpoint change takes ${milliseconds(largest.ms)} with ${largest.services} services, ${growth.toFixed(2)} times that with ${cheapest.services} (at most ${PLANNING_GROWTH})`;
    return [{ passed: growth <= PLANNING_GROWTH, text }];
  });
}

function judgeOwnWork(result: SizeResult, limitMs: number): Verdict[] {
  const full = fullSyncOf(result);
  if (full === undefined || result.services < OWN_WORK_FROM) return [];
  const { ownCpuMs, otherToolsCpuMs } = full.figures;
  const isCutOff = result.alone.length === 0;
  const aloneMs = isCutOff ? limitMs : median(result.alone.map(({ cpuMs }) => cpuMs));
  const part = (ownCpuMs + otherToolsCpuMs) / aloneMs;
  const alone = `${isCutOff ? "more than " : ""}${milliseconds(aloneMs)}`;
  const tools = full.isPretended ? "other tools left out" : `other tools ${milliseconds(otherToolsCpuMs)}`;
  const text = `${result.backEnd}: a full sync of ${result.services} services takes ${milliseconds(ownCpuMs)} of processor time itself, ${tools}: ${(100 * part).toFixed(0)}% of the ${alone} of iptables-restore alone (under ${100 * OWN_WORK_PART}%)`;
  return [{ passed: part < OWN_WORK_PART, text }];
}

function judgeEnds(results: readonly SizeResult[]): Verdict[] {
  return results.flatMap(({ backEnd, services, reports }) =>
    reports.flatMap((report) =>
      report.step === "failed"
        ? [{ passed: false, text: `${backEnd}: ${report.what} with ${services} services failed: ${report.reason}` }]
        : [],
    ),
  );
}

function milliseconds(ms: number): string {
  return `${ms < 10 ? ms.toFixed(2) : ms.toFixed(0)} ms`;
}
