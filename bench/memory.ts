/** Memory of this process as the kernel and the engine see it. */
import { readFileSync, writeFileSync } from "node:fs";

/** Megabytes (2^20). */
export interface Memory {
  readonly rssMb: number;
  /** Highest resident size since {@link resetPeak}. */
  readonly peakMb: number;
  readonly heapMb: number;
}

const MB = 2 ** 20;

export function memoryNow(): Memory {
  const status = readFileSync("/proc/self/status", "utf8");
  const peakKb = Number(/^VmHWM:\s+(\d+) kB/m.exec(status)?.[1] ?? 0);
  const { rss, heapUsed } = process.memoryUsage();
  return { rssMb: rss / MB, peakMb: peakKb / 1024, heapMb: heapUsed / MB };
}

/** Starts a new measurement of the peak. */
export function resetPeak(): void {
  writeFileSync("/proc/self/clear_refs", "5");
}

/** What stays when the daemon has collected what it can (`daemon/idle-memory.ts`). */
export function idleMemory(): Memory {
  globalThis.gc?.({ type: "major", execution: "sync", flavor: "last-resort" });
  return memoryNow();
}

/**
 * What stays when nothing is happening: collected twice, for weak references and what they held, the second time as the daemon does.
 * After an ordinary collection the engine keeps empty pages for a while, tens of megabytes more or less by chance.
 */
export async function settledMemory(): Promise<Memory> {
  globalThis.gc?.();
  await new Promise((resolve) => setTimeout(resolve, 20));
  return idleMemory();
}
