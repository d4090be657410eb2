/** Everything measured for one size with one back end. */
import type { BackEnd, StepReport } from "./figures.ts";

export interface SizeResult {
  readonly backEnd: BackEnd;
  readonly services: number;
  readonly endpointsEach: number;
  readonly textBytes: number;
  /** iptables-restore by itself: before and after the worker. Empty when it was cut off. */
  readonly aloneMs: readonly number[];
  readonly reports: readonly StepReport[];
}

type Step = StepReport["step"];

/** The reports of one kind of step, in order. Pure. */
export function reportsOf<S extends Step>(result: SizeResult, step: S): Extract<StepReport, { readonly step: S }>[] {
  return result.reports.filter((report): report is Extract<StepReport, { readonly step: S }> => report.step === step);
}

/** The first report of one kind of step. Pure. */
export function reportOf<S extends Step>(
  result: SizeResult,
  step: S,
): Extract<StepReport, { readonly step: S }> | undefined {
  return reportsOf(result, step)[0];
}
