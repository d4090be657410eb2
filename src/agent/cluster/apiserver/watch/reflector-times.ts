/** How long a reflector waits for the server, and before it relists. */

/** A server cannot send larger lists than this to all nodes at once: the wait grows with each further object. */
const LARGE_LIST = 4_000;
const PUT_OFF_MS_EACH = 3;
const LONGEST_PUT_OFF_MS = 30_000;

export function putOffMs(objects: number): number {
  return Math.min(LONGEST_PUT_OFF_MS, Math.max(0, objects - LARGE_LIST) * PUT_OFF_MS_EACH);
}

/** Only tests change these. */
export const REFLECTOR_TIMES = {
  /** The longest pause in a list. The API server itself gives up after a minute. */
  listIdleMs: 60_000,
  /** The longest wait until a watch is accepted. The API server itself gives up after a minute. */
  watchAnswerMs: 75_000,
  /** The longest pause in a streamed list, after which the reflector tries pages. */
  streamIdleMs: 60_000,
  /** Watches last from this time to twice this time. */
  watchTimeoutMs: 300_000,
  /** How long a watch may outlast its timeout. */
  watchGraceMs: 30_000,
  /** A watch that ends sooner without events is a failure, or a server that ends every watch would be asked nonstop. */
  shortWatchMs: 1_000,
  /** The longest wait before relisting so many objects after the version expired; the actual wait is random. */
  putOffMs,
};

export type ReflectorTimes = Readonly<typeof REFLECTOR_TIMES>;
