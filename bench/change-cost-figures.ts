/** What `npm run bench -- cost` measures at one size. */
import type { LayoutName } from "../src/dataplane/nftables/layout-name.ts";

/** Changes a second. */
export const RATES = [1_000, 5_000] as const;

export interface ChangeCostTask {
  readonly services: number;
  readonly endpointsEach: number;
  readonly layout: LayoutName;
  /** Repetitions of a change that comes alone. */
  readonly changes: number;
  /** Of each of {@link RATES}; 0: none. */
  readonly seconds: number;
}

export interface ChangeCostFigures {
  readonly services: number;
  /** From the first line of the watch to the bytes of all batches. */
  readonly loadMs: number;
  readonly loadCpuMs: number;
  /** Mean processor time of an endpoint replaced, alone in its sync, µs; all threads. */
  readonly replacedUs: number;
  /** The same of a service added with its slice. */
  readonly addedUs: number;
  readonly scrapeUs: number;
  /** Sent to the kernel for a replaced endpoint. */
  readonly bytes: number;
  /** Megabytes, before and after the load. */
  readonly memory: {
    readonly emptyMb: number;
    readonly emptyHeapMb: number;
    readonly rssMb: number;
    readonly heapMb: number;
  };
  /** Mean processor time per change. */
  readonly atRates: readonly { readonly perSecond: number; readonly us: number }[];
  readonly rssAfterMb: number;
}
