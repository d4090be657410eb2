/**
 * Names of what a run leaves in the system (namespaces, temporary folders), which let a later run recognise a dead
 * one's leftovers: `kpts-LABEL-PID.STARTTIME-SEQ`. The start time guards against a reused PID.
 */
import { readFileSync } from "node:fs";

const PATTERN = /^kpts-[a-z0-9]+-(\d+)\.(\d+)-\d+(?:-|$)/;
let sequence = 0;

/** Start time of a process in clock ticks since boot, or `undefined` if there is no such process. */
export function processStartTime(pid: number): string | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return undefined;
  }
  // Field 2 is the command in parentheses and may contain anything, so count from its end; the start time is field 22.
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19];
}

/** A name that no other run on this machine has. @param label lower-case letters and digits. */
export function newRunName(label: string): string {
  if (!/^[a-z0-9]+$/.test(label))
    throw new TypeError(`label ${JSON.stringify(label)}: want lower-case letters and digits`);
  sequence += 1;
  return `kpts-${label}-${process.pid}.${processStartTime(process.pid) ?? "0"}-${sequence}`;
}

/** Whether a name belongs to a run whose process is gone. Names in another form are never leftovers. */
export function isLeftover(name: string, startTimeOf: (pid: number) => string | undefined = processStartTime): boolean {
  const match = PATTERN.exec(name);
  if (match === null) return false;
  return startTimeOf(Number(match[1])) !== match[2];
}
