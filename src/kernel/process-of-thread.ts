/** The process behind a thread of which the kernel tells the number and name. */
import { readFileSync } from "node:fs";
import { attempt } from "../logging/attempt.ts";

export interface NamedProcess {
  readonly pid: number;
  readonly name: string;
}

/** Returns the thread itself if it has ended, or cannot be seen from here: its number is that of the initial PID namespace. */
export function processOfThread(thread: NamedProcess): NamedProcess {
  const found = attempt(() => {
    const status = readFileSync(`/proc/${thread.pid}/status`, "utf8");
    const [, group] = /^Tgid:\t(\d+)$/m.exec(status) ?? [];
    if (group === undefined || !status.startsWith(`Name:\t${thread.name}\n`)) return undefined;
    return { pid: Number(group), name: readFileSync(`/proc/${group}/comm`, "utf8").trimEnd() };
  });
  return found ?? thread;
}
