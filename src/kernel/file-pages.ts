/**
 * Gives back memory pages that this process does not need. A start reads 50 MB of the program's files (Node.js, libraries) once and hardly
 * again, but they stay resident until the system runs short of memory. So do 1 to 3 MB of free memory in the C library's pools.
 */
import { readFileSync } from "node:fs";
import { libc } from "./netlink/libc.ts";

const MADV_DONTNEED = 4;
/** `7f00-7f08 r-xp 00000000 08:01 42   /usr/lib/libc.so.6`: read-only, private, and with the path of a file. */
const MAPPING = /^(?<start>[0-9a-f]+)-(?<end>[0-9a-f]+) r-[-x]p \S+ \S+ \d+ +\/.*$/;
/** No page was ever written: all are as in the file. The dynamic linker writes to some mappings before it makes them read-only. */
const UNTOUCHED = /^Anonymous: +0 kB$/m;

/**
 * Releases clean file pages and free heap memory. A file page that is needed again comes back from the page cache in some microseconds.
 * @throws Error when /proc cannot be read.
 */
export function releaseFilePages(): void {
  for (const { start, end } of cleanFileMappings(readFileSync("/proc/self/smaps", "utf8"))) {
    // If this fails, we only lose the memory.
    libc().madvise(start, end - start, MADV_DONTNEED);
  }
  libc().mallocTrim(0);
}

/** Private read-only file mappings without modified pages, from the text of `/proc/PID/smaps`. */
export function cleanFileMappings(smaps: string): { readonly start: bigint; readonly end: bigint }[] {
  return smaps.split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m).flatMap((mapping) => {
    const { start, end } = MAPPING.exec(mapping.slice(0, mapping.indexOf("\n")))?.groups ?? {};
    if (start === undefined || end === undefined || !UNTOUCHED.test(mapping)) return [];
    return [{ start: BigInt(`0x${start}`), end: BigInt(`0x${end}`) }];
  });
}
