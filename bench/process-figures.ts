/** Processor time and memory of another process, as the kernel counts them. */
import { readFileSync } from "node:fs";

/** The kernel's unit in /proc, the same on every Linux. */
const MS_PER_TICK = 10;

export interface ProcessFigures {
  /** All threads, in user and kernel mode. */
  readonly cpuMs: number;
  readonly kernelCpuMs: number;
  /** Of the processes that it started and that have ended. */
  readonly childrenCpuMs: number;
  /** Resident now, and at its highest. Megabytes (2^20). */
  readonly rssMb: number;
  readonly peakMb: number;
  /** Of the resident part: pages of files, which all processes share. */
  readonly fileMb: number;
}

/** @throws when the process has ended. */
export function figuresOf(pid: number): ProcessFigures {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // After the name, which may hold anything, from the 12th field on: utime, stime, cutime, cstime.
  const ticks = stat
    .slice(stat.lastIndexOf(")") + 2)
    .split(" ")
    .slice(11, 15)
    .map((field) => Number(field) * MS_PER_TICK);
  const [user = 0, kernel = 0, childrenUser = 0, childrenKernel = 0] = ticks;
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const megabytes = (field: string): number =>
    Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(status)?.[1]) / 1024;
  return {
    cpuMs: user + kernel,
    kernelCpuMs: kernel,
    childrenCpuMs: childrenUser + childrenKernel,
    rssMb: megabytes("VmRSS"),
    peakMb: megabytes("VmHWM"),
    fileMb: megabytes("RssFile"),
  };
}
