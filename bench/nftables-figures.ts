/** What the bench of the nftables mode measures at one size. Times are milliseconds, memory megabytes. */

export interface Spread {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
}

export interface NftablesTask {
  readonly services: number;
  readonly endpointsEach: number;
  /** Repetitions of a one-endpoint change. */
  readonly changes: number;
  /** The same with `nft -f`. */
  readonly nftChanges: number;
  /** Seconds of a thousand changes each. */
  readonly burstSeconds: number;
  /** For each run of `nft`. */
  readonly limitMs: number;
}

export interface NftablesFigures {
  readonly services: number;
  /** From an empty namespace to the committed table; and the longest time that the event loop did not turn meanwhile. */
  readonly initialLoadMs: number;
  readonly initialDelayMs: number;
  readonly peakMb: number;
  readonly settledMb: number;
  /** Resident before the backend had done anything: the program and the model. */
  readonly modelMb: number;
  /** From the event to the commit. */
  readonly oneChange: Spread;
  /** What of that was ours: before the batch was sent, and after it was answered. */
  readonly oneChangeOwn: Spread;
  readonly serviceAdded: Spread;
  readonly hundredChanges: Spread;
  readonly burst: Burst;
  readonly restartMs: number;
  readonly restartWrites: number;
  /** By `nft -f`; empty when it was cut off. */
  readonly nftOneChange: Spread | undefined;
  readonly nftHundredChanges: Spread | undefined;
  readonly nftServiceAdded: Spread | undefined;
  /** `nft --json --terse list table`, which upstream runs at the start of every sync. */
  readonly nftListing: Spread;
  readonly nftInitialLoadMs: number | undefined;
}

/** A thousand endpoint changes a second. */
export interface Burst {
  readonly events: number;
  readonly latency: Spread;
  readonly syncs: number;
  /** Of one core. */
  readonly cpuShare: number;
}
