/**
 * Processor time of this process and of the tools it has run. Unlike time by the clock it hardly depends on what else the
 * machine is doing.
 */
import { readFileSync } from "node:fs";

/** The kernel's unit in /proc, the same on every Linux. */
const MS_PER_TICK = 10;

/** Milliseconds of the main thread; the engine's helpers (garbage collection, compiler) work beside it. */
export function ownCpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** Milliseconds of all child processes that have ended, in steps of 10. */
export function toolsCpuMs(): number {
  const stat = readFileSync("/proc/self/stat", "utf8");
  // After the name, which may hold anything: the 14th and 15th field from there are cutime and cstime.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return MS_PER_TICK * (Number(fields[13]) + Number(fields[14]));
}
