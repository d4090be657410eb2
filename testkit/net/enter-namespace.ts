/** Network namespaces of this process's own threads: `setns` changes the calling thread, and no other. */
import { closeSync, openSync } from "node:fs";
import { createRequire } from "node:module";
import { openLibrary } from "../../src/kernel/netlink/libc.ts";

/** linux/sched.h. */
const CLONE_NEWNET = 0x40000000;
const OWN = "/proc/thread-self/ns/net";

type Koffi = typeof import("koffi");
let loaded: { readonly setns: (fd: number, kind: number) => unknown; readonly errno: () => number } | undefined;

function load() {
  const koffi: Koffi = createRequire(import.meta.url)("koffi");
  return { setns: openLibrary(koffi).func("int setns(int fd, int kind)"), errno: () => koffi.errno() };
}

function moveTo(fd: number, path: string): void {
  loaded ??= load();
  if (loaded.setns(fd, CLONE_NEWNET) !== 0) throw new Error(`cannot enter ${path}: errno ${loaded.errno()}`);
}

/**
 * Moves this thread into the namespace for good. Names must not be looked up from then on: other threads do that.
 *
 * @param path the file that stands for it. @throws Error when there is none, or without root.
 */
export function enterNamespace(path: string): void {
  const fd = openSync(path, "r");
  try {
    moveTo(fd, path);
  } finally {
    closeSync(fd);
  }
}

/** Does something inside and comes back. It must be synchronous: after an await it would be outside. */
export function inNamespace<T>(path: string, work: () => T): T {
  const own = openSync(OWN, "r");
  try {
    enterNamespace(path);
    try {
      return work();
    } finally {
      moveTo(own, OWN);
    }
  } finally {
    closeSync(own);
  }
}
