/** The thread's side of helper-thread.ts: starts in its namespace and answers requests. */
import { readlinkSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import type { HelperData, Numbered } from "./helper-thread.ts";

function portOfThread(): MessagePort {
  if (parentPort === null) throw new Error("this program is a thread of the test kit");
  return parentPort;
}

/** Moves only this thread: `/proc/thread-self` is a link to `PID/task/THREAD`. */
function enterCgroup(cgroup: string): void {
  writeFileSync(join(cgroup, "cgroup.threads"), basename(readlinkSync("/proc/thread-self")));
}

/**
 * Serves requests until the thread is ended. Every socket that this thread opens is in its namespace.
 *
 * @param prepare gets the thread's argument and returns the function that answers a request.
 */
export function serveRequests<Request extends Numbered, Reply extends Numbered>(
  prepare: (argument: string) => (request: Request) => Promise<Reply>,
): void {
  const { argument, cgroup } = workerData as HelperData;
  if (cgroup !== undefined) enterCgroup(cgroup);
  const port = portOfThread();
  const answer = prepare(argument);
  port.on("message", (request: Request) => {
    void answer(request).then((reply) => port.postMessage(reply));
  });
}
