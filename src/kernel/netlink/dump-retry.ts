/** Repeats dumps that the kernel reports as interrupted. */
import { isInterrupted } from "./errors.ts";
import type { Reply } from "./frames.ts";
import type { MessageBuffer } from "./message-buffer.ts";
import type { CallOptions, NetlinkSocket } from "./socket.ts";

/** Attempts in total, as upstream makes for conntrack (reference sync.md §13.2). */
const ATTEMPTS = 5;

/**
 * Runs `dumpOnce`, which must begin with an empty result, until it is not interrupted, at most 5 times without delay.
 *
 * @returns whether the last attempt was complete; otherwise its partial result is what there is. Other errors are thrown.
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

/** What a dump lists, as {@link dumpWithRetry} repeats it. @param read undefined: left out. */
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
