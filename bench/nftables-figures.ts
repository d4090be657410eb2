/** What the bench of the nftables mode measures at one size. Times are milliseconds, memory megabytes. */

import type { LayoutName } from "../src/dataplane/nftables/layout-name.ts";
export interface Spread {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
}

/** What can be measured by itself; the first load always is. */
export const PARTS = ["changes", "burst", "healing", "upstream", "upstream-load", "connection"] as const;
export type Part = (typeof PARTS)[number];

export interface NftablesTask {
  readonly layout: LayoutName;
  readonly services: number;
  readonly endpointsEach: number;
  readonly parts: readonly Part[];
  /** Repetitions of a one-endpoint change. */
  readonly changes: number;
  /** The same with `nft -f`. */
  readonly nftChanges: number;
  readonly burstSeconds: number;
  /** Changes in each of them. */
  readonly burstRate: number;
  /** Repetitions of each kind of damage, and new services connected to. */
  readonly trials: number;
  /** For each run of `nft`. */
  readonly limitMs: number;
}

export interface LoadFigures {
  /** From an empty namespace to the committed table. */
  readonly loadMs: number;
  /** Longest that a health request took meanwhile, and how many there were. */
  readonly healthMaxMs: number;
  readonly healthRequests: number;
  /** Longest that the event loop did not turn, in processor time: without waiting for a processor. */
  readonly longestTurnMs: number;
  /** Resident before the backend had done anything (the program and the model), at most, and afterwards. */
  readonly modelMb: number;
  readonly peakMb: number;
  readonly settledMb: number;
  /** A new process over the same table, and the transactions that it made. */
  readonly restartMs: number;
  readonly restartWrites: number;
}

/** Batches made beforehand and sent at once, as bytes over a socket: what the kernel takes at least. */
export interface FloorFigures {
  /** Mean processor time of {@link FloorFigures.one}. */
  readonly oneCpuMs: number;
  /** One endpoint of a service replaced. */
  readonly one: Spread;
  /** A rule that makes the kernel check the table, without a set, in a chain that nothing leads to. */
  readonly checked: Spread;
  /** A rule without any expression in that chain. */
  readonly trivial: Spread;
}

export interface ChangeFigures {
  /** From the event to the commit. */
  readonly one: Spread;
  /** What of that was ours: before the batch was sent, and after it was answered. */
  readonly oneOwn: Spread;
  /** Mean processor time, of all threads: hardly depends on what else the machine is doing. */
  readonly oneCpuMs: number;
  readonly floor: FloorFigures;
  readonly serviceAdded: Spread;
  readonly hundred: Spread;
}

/** A thousand endpoint changes a second. */
export interface Burst {
  readonly events: number;
  readonly latency: Spread;
  readonly syncs: number;
  /** Of one core. */
  readonly cpuShare: number;
  /** Of all threads, without {@link timerCpuSeconds}. */
  readonly cpuSeconds: number;
  /** Of the bench's own timer for the same time, measured while it did nothing. */
  readonly timerCpuSeconds: number;
}

/** From another program's commit to the commit of the repair, for each kind of damage. */
export interface HealingFigures {
  readonly kinds: readonly { readonly kind: string; readonly time: Spread; readonly operations: number }[];
}

/** By the `nft` program; what was cut off is undefined. */
export interface UpstreamFigures {
  readonly one: Spread | undefined;
  readonly hundred: Spread | undefined;
  readonly serviceAdded: Spread | undefined;
  /** `nft --json --terse list table`, which upstream runs at the start of every sync. */
  readonly listing: Spread;
  /** Mean processor time of the nft program. */
  readonly oneCpuMs: number;
  readonly listingCpuMs: number;
}

/** From what makes a new service known to the first connection through its cluster IP, with the daemon. */
export interface ConnectionFigures {
  readonly manifest: Spread;
  /** From before the objects are put into the API server. */
  readonly api: Spread;
}

export interface NftablesFigures {
  readonly layout: LayoutName;
  readonly services: number;
  readonly load: LoadFigures;
  readonly changes?: ChangeFigures;
  readonly burst?: Burst;
  /** The seconds of the same stream before, in which the engine still compiles. */
  readonly burstBefore?: Burst;
  readonly healing?: HealingFigures;
  readonly upstream?: UpstreamFigures;
  /** `nft -f` of the whole table. */
  readonly upstreamLoad?: { readonly loadMs: number | undefined };
  readonly connection?: ConnectionFigures;
}
