/** The kernel's version, from /proc/sys/kernel/osrelease. */
import { readFile } from "node:fs/promises";

export interface KernelVersion {
  readonly major: number;
  readonly minor: number;
}

/** Parses a release like `6.1.0-13-amd64`; undefined for text that does not begin with two numbers. */
export function parseKernelVersion(release: string): KernelVersion | undefined {
  const match = /^(\d+)\.(\d+)/.exec(release);
  return match === null ? undefined : { major: Number(match[1]), minor: Number(match[2]) };
}

export function isAtLeast(version: KernelVersion, least: KernelVersion): boolean {
  return version.major > least.major || (version.major === least.major && version.minor >= least.minor);
}

/** @returns the kernel's release text. @throws Error when it cannot be read. */
export async function kernelRelease(file = "/proc/sys/kernel/osrelease"): Promise<string> {
  return (await readFile(file, "utf8")).trim();
}
