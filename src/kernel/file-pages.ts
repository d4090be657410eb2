/**
 * Pages that this process does not need. Of the program's files (Node.js, libraries) a start reads 50 MB once and hardly again, but they stay
 * mapped, and count as resident, until the system is short of memory. What is free in the C library's pools stays likewise, 1 to 3 MB.
 */
import { readFileSync } from "node:fs";
import { libc } from "./netlink/libc.ts";

const MADV_DONTNEED = 4;
/** `7f00-7f08 r-xp 00000000 08:01 42   /usr/lib/libc.so.6`, read-only and private; what is no file has no path. */
const MAPPING = /^(?<start>[0-9a-f]+)-(?<end>[0-9a-f]+) r-[-x]p \S+ \S+ \d+ +\/.*$/;
/** No page was ever written, so that the file has all of them. The dynamic linker writes to mappings that are read-only later. */
const UNTOUCHED = /^Anonymous: +0 kB$/m;

/**
 * Gives them back. Those of files that are needed again come back from the page cache, some microseconds each. Throws where /proc cannot
 * be read.
 */
export function releaseFilePages(): void {
  for (const { start, end } of cleanFileMappings(readFileSync("/proc/self/smaps", "utf8"))) {
    // A refusal costs nothing but memory.
    libc().madvise(start, end - start, MADV_DONTNEED);
  }
  libc().mallocTrim(0);
}

/** Mappings of files whose pages are all as in the file, from the text of `/proc/PID/smaps`. Pure. */
export function cleanFileMappings(smaps: string): { readonly start: bigint; readonly end: bigint }[] {
  return smaps.split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m).flatMap((mapping) => {
    const { start, end } = MAPPING.exec(mapping.slice(0, mapping.indexOf("\n")))?.groups ?? {};
    if (start === undefined || end === undefined || !UNTOUCHED.test(mapping)) return [];
    return [{ start: BigInt(`0x${start}`), end: BigInt(`0x${end}`) }];
  });
}
