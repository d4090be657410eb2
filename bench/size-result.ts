/** Everything measured for one size with one back end. */
import type { BackEnd, StepReport } from "./figures.ts";
import type { RestoreTime } from "./restore-alone.ts";

export interface SizeResult {
  readonly backEnd: BackEnd;
  readonly services: number;
  readonly endpointsEach: number;
  readonly textBytes: number;
  /** iptables-restore by itself: before and after the worker. Empty when it was cut off. */
  readonly alone: readonly RestoreTime[];
  readonly reports: readonly StepReport[];
}

type Step = StepReport["step"];

/** The reports of one kind of step, in order. Pure. */
export function reportsOf<S extends Step>(result: SizeResult, step: S): Extract<StepReport, { readonly step: S }>[] {
  return result.reports.filter((report): report is Extract<StepReport, { readonly step: S }> => report.step === step);
}

/** The full sync that stands for all: of those with real tools, if there are any, the middle one by own work. Pure. */
export function fullSyncOf(result: SizeResult): Extract<StepReport, { readonly step: "full" }> | undefined {
  const all = reportsOf(result, "full");
  const real = all.filter(({ isPretended }) => !isPretended);
  const sorted = (real.length > 0 ? real : all).sort((a, b) => a.figures.ownCpuMs - b.figures.ownCpuMs);
  return sorted[(sorted.length - 1) >> 1];
}

/** The first report of one kind of step. Pure. */
export function reportOf<S extends Step>(
  result: SizeResult,
  step: S,
): Extract<StepReport, { readonly step: S }> | undefined {
  return reportsOf(result, step)[0];
}
