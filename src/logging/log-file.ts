/** Writes log lines to a file, for processes without standard error, such as a Windows service. */
import { closeSync, fstatSync, openSync, renameSync, writeSync } from "node:fs";
import type { WriteLog } from "./standard-streams.ts";

/** A file of this size becomes `FILE.1`, replacing the previous one. */
const LIMIT_BYTES = 100 * 2 ** 20;

/**
 * Appends to a file that exceeds the limit by at most one write, and keeps one older file beside it. What cannot be
 * written (a full disk) is lost.
 *
 * @throws the error of `node:fs` when the file cannot be opened.
 */
export function logFile(path: string, limitBytes = LIMIT_BYTES): WriteLog {
  // Undefined while the file cannot be opened: its descriptor may belong to another file by now.
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
      // Another program holds the older file: this one keeps growing, and the next line tries again.
    }
    if (file === undefined) return;
    try {
      size += writeSync(file, lines);
    } catch {
      // There is nowhere to report the error.
    }
  };
}
