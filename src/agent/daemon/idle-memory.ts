/**
 * Returns memory to the system when the process is idle. The engine collects garbage only as it allocates: after the start, the
 * first sync of a large cluster, or a storm of changes, an idle process would keep that memory, and the code that it ran would
 * stay mapped. Measured: docs/notes/performance-diary.md.
 *
 * A collection stops the program for about 1 ms per MB in use. So it runs only after the processor has been idle for a while and
 * if there is much to gain, and never again once one took too long. The first one follows the start, with a heap of any size.
 */
import { getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Clock } from "../../async/clock.ts";
import type { Logger } from "../../logging/logger.ts";

const LOOK_MS = 5_000;
/** Less processor time than this between two looks counts as idle: 2 %. */
const IDLE_CPU_MS = 100;
const IDLE_LOOKS = 2;
/** After the start, smaller heaps are left alone; so is growth that is neither this large nor a quarter of the heap. */
const SMALL_HEAP_BYTES = 48 * 2 ** 20;
const LEAST_GAIN_BYTES = 16 * 2 ** 20;
const LEAST_GAIN_SHARE = 0.25;
/** After a collection that took longer, the engine is left to itself. */
const LONGEST_MS = 500;

export interface IdleMemoryOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** Size of the heap. @default of this process */
  readonly heapBytes?: () => number;
  /** Processor time used so far, all threads. @default of this process */
  readonly cpuMs?: () => number;
  /** Collects all garbage and returns the pages. @default the engine's last resort */
  readonly collect?: () => void;
  /** Unmaps unused pages of the program's files. @default this process's */
  readonly releaseFiles?: () => void;
}

/** Runs until the signal aborts. */
export async function collectWhenIdle(options: IdleMemoryOptions, signal: AbortSignal): Promise<void> {
  const { clock, log, heapBytes = ownHeapBytes, cpuMs = ownCpuMs, collect = lastResort } = options;
  const { releaseFiles = await ownFilePages() } = options;
  // The start always leaves garbage, however little, and mappings of what it read.
  let floorBytes = Number.NEGATIVE_INFINITY;
  let lastCpuMs = cpuMs();
  let idleLooks = 0;
  for (;;) {
    await clock.sleep(LOOK_MS, signal);
    if (signal.aborted) return;
    const nowCpuMs = cpuMs();
    idleLooks = nowCpuMs - lastCpuMs < IDLE_CPU_MS ? idleLooks + 1 : 0;
    lastCpuMs = nowCpuMs;
    const before = heapBytes();
    if (idleLooks < IDLE_LOOKS || before - floorBytes < Math.max(LEAST_GAIN_BYTES, floorBytes * LEAST_GAIN_SHARE)) {
      continue;
    }
    const startMs = clock.monotonicMs();
    collect();
    const tookMs = clock.monotonicMs() - startMs;
    release(releaseFiles, log);
    floorBytes = Math.max(SMALL_HEAP_BYTES, heapBytes());
    lastCpuMs = cpuMs();
    log.v(2, "Collected garbage while idle", {
      heapMBBefore: Math.round(before / 2 ** 20),
      heapMBAfter: Math.round(heapBytes() / 2 ** 20),
      milliseconds: Math.round(tookMs),
    });
    if (tookMs > LONGEST_MS) return;
  }
}

async function ownFilePages(): Promise<() => void> {
  if (process.platform !== "linux") return () => {};
  return (await import("../../kernel/file-pages.ts")).releaseFilePages;
}

function release(releaseFiles: () => void, log: Logger): void {
  try {
    releaseFiles();
  } catch (error) {
    log.v(2, "Pages of files stay mapped", { err: error });
  }
}

/** Not `process.memoryUsage`: it reads a file, and throws without a free descriptor. */
function ownHeapBytes(): number {
  return getHeapStatistics().total_heap_size;
}

function ownCpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function lastResort(): void {
  // The function exists only in contexts created after the flag was set.
  setFlagsFromString("--expose-gc");
  const gc: unknown = runInNewContext("gc");
  setFlagsFromString("--no-expose-gc");
  if (typeof gc === "function") gc({ type: "major", execution: "sync", flavor: "last-resort" });
}
