/** What the bench of the API server as a source measures in one mode. */
import type { ProxyMode } from "../src/dataplane/registry.ts";

export interface ApiServerTask {
  readonly mode: ProxyMode;
  readonly services: number;
  readonly endpointsEach: number;
  readonly hasWatchList: boolean;
  readonly eventsPerSecond: number;
  readonly eventSeconds: number;
  /** Rest before the settled size is read. */
  readonly settleSeconds: number;
}

/** A stream of events, as one process took it. */
export interface StreamFigures {
  readonly events: number;
  readonly bytesPerEvent: number;
  /** Processor time of all threads per event, and what of it was spent in the kernel. */
  readonly cpuUsPerEvent: number;
  readonly kernelCpuUsPerEvent: number;
  /** Of tools that were run. */
  readonly childrenCpuUsPerEvent: number;
  readonly allocatedBytesPerEvent: number;
  /** Share of the time in which the program stood still to collect garbage. */
  readonly pauseShare: number;
  readonly rssMb: number;
}

export interface ApiServerFigures {
  readonly mode: ProxyMode;
  readonly services: number;
  readonly endpointsEach: number;
  readonly listBytes: number;
  /** From the start of the process until everything was delivered, and until the rules were in the kernel. */
  readonly listedMs: number;
  readonly syncedMs: number;
  /** Processor time until then. */
  readonly syncedCpuMs: number;
  /** Megabytes. */
  readonly peakMb: number;
  readonly syncedMb: number;
  readonly settledMb: number;
  readonly fileMb: number;
  /** The whole program. */
  readonly stream: StreamFigures;
  readonly afterStreamMb: number;
  /** Nothing but the source: requests, decoding, the minimal set of events. */
  readonly source: StreamFigures;
}
