/** What the worker tells the bench: one JSON line per step. */

import type { RestoreTime } from "./iptables.ts";
import type { Memory } from "./memory.ts";

/** One sync, split. Milliseconds unless named otherwise. */
export interface SyncFigures {
  readonly wallMs: number;
  /** From the first event of the change until the model has it; 0 for full syncs. */
  readonly modelMs: number;
  /** Tools other than iptables-restore: jumps and chains ensured, chains listed. */
  readonly otherToolsMs: number;
  /** Rules planned and spelled. */
  readonly planMs: number;
  /** From the last service planned to the start of iptables-restore: the payload put together. */
  readonly payloadMs: number;
  /** Life of the iptables-restore processes. */
  readonly restoreMs: number;
  /** Our processor time meanwhile: the payload written. */
  readonly writeCpuMs: number;
  /** Everything but iptables-restore: `wallMs + modelMs - restoreMs + writeCpuMs`. */
  readonly ownMs: number;
  /** Given to iptables-restore. */
  readonly bytes: number;
  /** Processor time of our main thread from the start of the sync to its end, of the other tools, of iptables-restore. */
  readonly ownCpuMs: number;
  readonly otherToolsCpuMs: number;
  readonly restoreCpuMs: number;
}

/** Several runs of the same step. */
export interface RepeatedFigures {
  readonly count: number;
  /** Of each figure by itself. */
  readonly median: SyncFigures;
  readonly ownP90Ms: number;
}

export type SmallChange = "endpoint replaced" | "service added" | "service removed";

export type StepReport =
  | { readonly step: "load"; readonly wallMs: number; readonly before: Memory; readonly after: Memory }
  | {
      readonly step: "full";
      /** Whether tools were only pretended to run: the sync would have been cut off. */
      readonly isPretended: boolean;
      readonly figures: SyncFigures;
      readonly after: Memory;
      readonly settled: Memory;
    }
  | { readonly step: "change"; readonly change: SmallChange; readonly figures: RepeatedFigures }
  | { readonly step: "restart"; readonly figures: SyncFigures; readonly after: Memory }
  /** One-endpoint changes without a tool: what planning costs. */
  | { readonly step: "planning"; readonly figures: RepeatedFigures }
  | { readonly step: "cut off"; readonly what: string; readonly reason: string }
  | { readonly step: "failed"; readonly what: string; readonly reason: string };

/** The worker's task, as its only argument. */
export interface WorkerTask {
  readonly backEnd: BackEnd;
  readonly services: number;
  readonly endpointsEach: number;
  readonly limitMs: number;
  /** Repetitions of each small change with the real tool, and of planning without. */
  readonly changes: number;
  readonly plannings: number;
  /** Pretend to run the tools from the start. */
  readonly onlyOwnWork: boolean;
  /** End after the first full sync. */
  readonly onlyFullSync: boolean;
  /** Write the payload of the full sync to this file and do nothing else. */
  readonly textFile?: string;
}

export type BackEnd = "legacy" | "nft";

export const BACK_ENDS: readonly BackEnd[] = ["legacy", "nft"];

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
