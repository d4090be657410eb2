/** The thread's side of helper-thread.ts: it enters its namespace, then answers requests. */
import { closeSync, openSync } from "node:fs";
import { createRequire } from "node:module";
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import type { HelperData, Numbered } from "./helper-thread.ts";

/** linux/sched.h. */
const CLONE_NEWNET = 0x40000000;

function enterNamespace(path: string): void {
  const koffi: typeof import("koffi") = createRequire(import.meta.url)("koffi");
  const setns = koffi.load("libc.so.6").func("int setns(int fd, int kind)");
  const fd = openSync(path, "r");
  const result: unknown = setns(fd, CLONE_NEWNET);
  closeSync(fd);
  if (result !== 0) throw new Error(`cannot enter the namespace ${path}: errno ${koffi.errno()}`);
}

function portOfThread(): MessagePort {
  if (parentPort === null) throw new Error("this program is a thread of the test kit");
  return parentPort;
}

/**
 * Serves requests until the thread is ended. Every socket that this thread opens from here on is in its namespace; names must
 * not be looked up, for that is done by other threads.
 *
 * @param prepare gets the argument that the thread was started with, and returns what answers one request.
 */
export function serveRequests<Request extends Numbered, Reply extends Numbered>(
  prepare: (argument: string) => (request: Request) => Promise<Reply>,
): void {
  const { namespacePath, argument } = workerData as HelperData;
  enterNamespace(namespacePath);
  const port = portOfThread();
  const answer = prepare(argument);
  port.on("message", (request: Request) => {
    void answer(request).then((reply) => port.postMessage(reply));
  });
}
