/** What the bench of the start measures. */
import type { LayoutName } from "../src/dataplane/nftables/layout-name.ts";
import type { ProxyMode } from "../src/dataplane/registry.ts";

export interface StartTask {
  readonly mode: ProxyMode;
  /** Of the first checkout; the others may not know it. @default what the mode does without */
  readonly layout?: LayoutName;
  readonly services: number;
  readonly endpointsEach: number;
  /** Whether lists can be streamed; otherwise they are read in pages. */
  readonly hasWatchList: boolean;
  readonly rounds: number;
  /** Checkouts with a built `dist/`, started in turns. The first is this one. */
  readonly checkouts: readonly string[];
  /** Rest before the settled size is read. */
  readonly settleSeconds: number;
}

/** One start of one checkout. Times are from the start of the process, milliseconds. */
export interface StartFigures {
  /** Until Services and EndpointSlices are delivered. */
  readonly listedMs: number;
  /** Until the rules of all families are in the kernel. */
  readonly syncedMs: number;
  /** Processor time until then, the tools included. */
  readonly cpuMs: number;
  /** Megabytes: highest until the rules were there, and at rest. */
  readonly peakMb: number;
  readonly settledMb: number;
  /** At rest: without what pages of files share with other processes. */
  readonly settledPrivateMb: number;
}

/** What no start can do without, milliseconds. */
export interface FloorFigures {
  /** One run of the shortest program: start of the process to everything parsed. */
  readonly parsedMs: number;
  /** Of the kernel alone, for the batches of the first load. Of mode nftables only. */
  readonly sentMs?: number;
  /** Processor time until everything is parsed. */
  readonly cpuMs: number;
}

export interface StartResult {
  readonly task: StartTask;
  readonly listBytes: number;
  /** By checkout, in the order of the task. */
  readonly starts: readonly (readonly StartFigures[])[];
  readonly floor: readonly FloorFigures[];
}
