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
  const { rss, heapUsed } = process.memoryUsage();
  return { rssMb: rss / MB, peakMb: figuresOf(process.pid).peakMb, heapMb: heapUsed / MB };
}

/** Starts a new measurement of the peak. */
export function resetPeak(): void {
  writeFileSync("/proc/self/clear_refs", "5");
}

/**
 * What stays when nothing is happening: collected twice, for weak references and what they held, the second time as the daemon does
 * (`agent/daemon/idle-memory.ts`). After an ordinary collection the engine keeps empty pages for a while: tens of megabytes, by chance.
 */
export async function settledMemory(): Promise<Memory> {
  globalThis.gc?.();
  await new Promise((resolve) => setTimeout(resolve, 20));
  globalThis.gc?.({ type: "major", execution: "sync", flavor: "last-resort" });
  return memoryNow();
}

/** The kernel's unit in /proc, the same on every Linux. */
const MS_PER_TICK = 10;

/** Milliseconds of the main thread; the engine's helpers (garbage collection, compiler) run beside it. */
export function ownCpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** Processor time of all threads for the work, in milliseconds: hardly depends on what else the machine is doing. */
export async function cpuMsOf(work: () => unknown): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

/** Milliseconds of all child processes that have ended, in steps of 10. */
export function toolsCpuMs(): number {
  return figuresOf(process.pid).childrenCpuMs;
}

/** Processor time and memory of a process, as the kernel counts them. */
export interface ProcessFigures {
  /** All threads, in user and kernel mode. */
  readonly cpuMs: number;
  readonly kernelCpuMs: number;
  /** Of the child processes that have ended. */
  readonly childrenCpuMs: number;
  /** Currently resident, and the peak. Megabytes (2^20). */
  readonly rssMb: number;
  readonly peakMb: number;
  /** Part of the resident size: file pages, which all processes share. */
  readonly fileMb: number;
  /** Part of the resident size: what no other process shares. */
  readonly privateMb: number;
}

/** @throws if the process has ended. */
export function figuresOf(pid: number): ProcessFigures {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // After the name, which may contain anything, from the 12th field on: utime, stime, cutime, cstime.
  const ticks = stat
    .slice(stat.lastIndexOf(")") + 2)
    .split(" ")
    .slice(11, 15)
    .map((field) => Number(field) * MS_PER_TICK);
  const [user = 0, kernel = 0, childrenUser = 0, childrenKernel = 0] = ticks;
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const megabytes = (text: string, field: string): number =>
    Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(text)?.[1]) / 1024;
  return {
    cpuMs: user + kernel,
    kernelCpuMs: kernel,
    childrenCpuMs: childrenUser + childrenKernel,
    rssMb: megabytes(status, "VmRSS"),
    peakMb: megabytes(status, "VmHWM"),
    fileMb: megabytes(status, "RssFile"),
    get privateMb() {
      const text = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
      return megabytes(text, "Private_Clean") + megabytes(text, "Private_Dirty");
    },
  };
}
