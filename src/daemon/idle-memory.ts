/**
 * Gives memory back when nothing is going on. The engine collects garbage as a consequence of allocation: after the start,
 * the first sync of a large cluster, or a storm of changes, an idle process would keep what that needed, and the code that
 * it ran stays mapped. Measured: docs/performance.md.
 *
 * A collection stops the program for about 1 ms per MB that is in use. So there is one only when the processor has had
 * nothing to do for a while and much is to be gained, and none any more once one has taken long. The first is the start's, of any size.
 */
import { getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Clock } from "../async/clock.ts";
import type { Logger } from "../logging/logger.ts";

const LOOK_MS = 5_000;
/** Less processor time than this between two looks is idleness: 2 %. */
const IDLE_CPU_MS = 100;
const IDLE_LOOKS = 2;
/** After the start, heaps below this are left alone; so is growth that is neither so large nor a quarter of the heap. */
const SMALL_HEAP_BYTES = 48 * 2 ** 20;
const LEAST_GAIN_BYTES = 16 * 2 ** 20;
const LEAST_GAIN_SHARE = 0.25;
/** After one that took longer the engine is left to itself. */
const LONGEST_MS = 500;

export interface IdleMemoryOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** Size of the heap. @default of this process */
  readonly heapBytes?: () => number;
  /** Processor time used so far, all threads. @default of this process */
  readonly cpuMs?: () => number;
  /** Collects everything that is garbage and returns the pages. @default the engine's last resort */
  readonly collect?: () => void;
  /** Unmaps pages of the program's files that are not in use. @default this process's */
  readonly releaseFiles?: () => void;
}

/** Runs until the signal aborts. */
export async function collectWhenIdle(options: IdleMemoryOptions, signal: AbortSignal): Promise<void> {
  const { clock, log, heapBytes = ownHeapBytes, cpuMs = ownCpuMs, collect = lastResort } = options;
  const { releaseFiles = await ownFilePages() } = options;
  // The start leaves garbage, and mapped what it has read, however little.
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
  return (await import("../kernel/file-pages.ts")).releaseFilePages;
}

function release(releaseFiles: () => void, log: Logger): void {
  try {
    releaseFiles();
  } catch (error) {
    log.v(2, "Pages of files stay mapped", { err: error });
  }
}

/** Not `process.memoryUsage`: that reads a file, and throws when there is no descriptor left. */
function ownHeapBytes(): number {
  return getHeapStatistics().total_heap_size;
}

function ownCpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function lastResort(): void {
  // The function exists only in contexts made after the flag was set.
  setFlagsFromString("--expose-gc");
  const gc: unknown = runInNewContext("gc");
  setFlagsFromString("--no-expose-gc");
  if (typeof gc === "function") gc({ type: "major", execution: "sync", flavor: "last-resort" });
}
