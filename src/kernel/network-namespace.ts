/** Short visits to other network namespaces of this machine. */
import { closeSync, openSync } from "node:fs";
import { createRequire } from "node:module";
import { errnoName } from "./netlink/errors.ts";
import { libc, openLibrary } from "./netlink/libc.ts";

const CLONE_NEWNET = 0x40000000;
const OWN = "/proc/thread-self/ns/net";

type Enter = (fd: number, kind: number) => number;

let enter: Enter | undefined;

/**
 * Runs `work` in the network namespace of a file (`/proc/PID/ns/net`, `/run/netns/NAME`). Sockets that it opens stay there. The work must
 * be synchronous, since the whole thread is in that namespace meanwhile. Other threads are not affected.
 *
 * @throws Error with the errno's name if the file cannot be opened or the namespace cannot be entered (CAP_SYS_ADMIN).
 */
export function inNetworkNamespace<T>(path: string, work: () => T): T {
  enter ??= load();
  const own = openSync(OWN, "r");
  try {
    const other = openSync(path, "r");
    try {
      if (enter(other, CLONE_NEWNET) < 0)
        throw new Error(`the network namespace ${path} cannot be entered: ${errnoName(libc().errno())}`);
    } finally {
      closeSync(other);
    }
    try {
      return work();
    } finally {
      // A proxy stuck in another namespace would write its rules there.
      if (enter(own, CLONE_NEWNET) < 0) process.abort();
    }
  } finally {
    closeSync(own);
  }
}

function load(): Enter {
  const koffi: typeof import("koffi") = createRequire(import.meta.url)("koffi");
  return openLibrary(koffi).func("int setns(int fd, int kind)");
}
