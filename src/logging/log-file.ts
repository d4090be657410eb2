/** Log lines in a file, for processes without standard error: a Windows service has none. */
import { closeSync, fstatSync, openSync, renameSync, writeSync } from "node:fs";
import type { WriteLog } from "./standard-streams.ts";

/** A file of this size becomes `FILE.1`, in the place of the one before. */
const LIMIT_BYTES = 100 * 2 ** 20;

/**
 * Appends to a file, which is never larger than the limit by more than a line, and keeps the one before beside it. What cannot be
 * written (a full disk) is lost.
 *
 * @throws the error of `node:fs` when the file cannot be opened.
 */
export function logFile(path: string, limitBytes = LIMIT_BYTES): WriteLog {
  // Undefined while it cannot be opened: its number may be another file's by now.
  let file: number | undefined = openSync(path, "a");
  let size = fstatSync(file).size;
  const startAgain = (): void => {
    if (file !== undefined) closeSync(file);
    file = undefined;
    try {
      renameSync(path, `${path}.1`);
    } finally {
      file = openSync(path, "a");
      size = fstatSync(file).size;
    }
  };
  return (_stream, lines) => {
    try {
      if (file === undefined || size >= limitBytes) startAgain();
    } catch {
      // Another program holds the one before: this one grows on, and it is tried again with the next line.
    }
    if (file === undefined) return;
    try {
      size += writeSync(file, lines);
    } catch {
      // There is nowhere to report it.
    }
  };
}
