/** The process behind a thread of which the kernel tells the number and name. */
import { readFileSync } from "node:fs";
import { attempt } from "../logging/attempt.ts";

/** The name of processes that run this program: their own name is that of Node.js' main thread. */
export const KUBE_PROXY = "kube-proxy";
const OUR_COMMAND = /\/(dist\/bundle\/main\.js|src\/(?:tools\/)?cli\/main\.ts)\0/;

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
    const isOurs = OUR_COMMAND.test(readFileSync(`/proc/${group}/cmdline`, "utf8"));
    return { pid: Number(group), name: isOurs ? KUBE_PROXY : readFileSync(`/proc/${group}/comm`, "utf8").trimEnd() };
  });
  return found ?? thread;
}
