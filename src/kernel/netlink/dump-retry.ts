/** Repeats dumps that the kernel reports as interrupted. */
import { isInterrupted } from "./errors.ts";
import type { Reply } from "./frames.ts";
import { MessageBuffer } from "./message-buffer.ts";
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

/**
 * What the kernel answers to requests. An interrupted dump is repeated, as in {@link dumpWithRetry}. Throws the first error.
 *
 * @param write appends the requests. @param read returns undefined to skip an answer. @default skips all
 */
export async function answersTo<T = never>(
  socket: Pick<NetlinkSocket, "dump">,
  write: (request: MessageBuffer) => void,
  read: (reply: Reply) => T | undefined = () => undefined,
  options?: CallOptions,
): Promise<T[]> {
  const request = new MessageBuffer(128);
  write(request);
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
