/** Repeats dumps that the kernel reports as interrupted. */
import { isInterrupted } from "./errors.ts";
import type { Reply } from "./frames.ts";
import type { MessageBuffer } from "./message-buffer.ts";
import type { CallOptions, NetlinkSocket } from "./socket.ts";

/** Total attempts: as many as upstream makes for conntrack (reference sync.md §13.2). */
const ATTEMPTS = 5;

/**
 * Runs `dumpOnce` until it is not interrupted, at most 5 times, without delay. Each run must start with an empty result.
 *
 * @returns whether the last attempt was complete; otherwise the caller has its partial result. Other errors are thrown.
 */
export async function dumpWithRetry(dumpOnce: () => Promise<void>): Promise<boolean> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    try {
      await dumpOnce();
      return true;
    } catch (error) {
      if (!isInterrupted(error)) throw error;
    }
  }
  return false;
}

/** Collects the objects of a dump, with {@link dumpWithRetry}. @param read returns undefined to skip an object. */
export async function collectDump<T>(
  socket: Pick<NetlinkSocket, "dump">,
  request: MessageBuffer,
  read: (reply: Reply) => T | undefined,
  options?: CallOptions,
): Promise<T[]> {
  let found: T[] = [];
  await dumpWithRetry(() => {
    found = [];
    return socket.dump(
      request,
      (reply) => {
        const one = read(reply);
        if (one !== undefined) found.push(one);
      },
      options,
    );
  });
  return found;
}
