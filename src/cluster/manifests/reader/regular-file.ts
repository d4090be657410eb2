/** Reads a file without trusting that what was listed is still there. */
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";

/** Opening never waits, not even for the writer of a pipe. Windows has neither flag. */
const FLAGS = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0) | (constants.O_NOCTTY ?? 0);

/**
 * The bytes of a regular file.
 *
 * @param inode `device:inode` of the file that is meant.
 * @returns `undefined` when something else is there now. Throws when it is too large or cannot be read.
 */
export function readRegularFile(file: string, inode: string, mostBytes: number): Buffer | undefined {
  const fd = openSync(file, FLAGS);
  try {
    const stats = fstatSync(fd, { bigint: true });
    if (!stats.isFile() || `${stats.dev}:${stats.ino}` !== inode) return undefined;
    // A file may grow while it is read.
    const bytes = Buffer.allocUnsafe(Math.min(Number(stats.size), mostBytes) + 1);
    const portions: Buffer[] = [];
    let total = 0;
    for (;;) {
      const count = readSync(fd, bytes, 0, bytes.length, null);
      total += count;
      if (total > mostBytes) throw new Error(`it is larger than ${mostBytes} bytes; split it`);
      if (count === 0) return Buffer.concat(portions);
      portions.push(Buffer.from(bytes.subarray(0, count)));
    }
  } finally {
    closeSync(fd);
  }
}
