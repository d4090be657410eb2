/** How long a reflector waits: for the server, and before it lists again. */

/** Lists of more objects than this are what a server cannot send to all nodes at once: one of them is put off for some time for each more. */
const LARGE_LIST = 4_000;
const PUT_OFF_MS_EACH = 3;
const LONGEST_PUT_OFF_MS = 30_000;

export function putOffMs(objects: number): number {
  return Math.min(LONGEST_PUT_OFF_MS, Math.max(0, objects - LARGE_LIST) * PUT_OFF_MS_EACH);
}

/** Times that only tests change. */
export const REFLECTOR_TIMES = {
  /** Longest silence of a list. The API server itself gives up after a minute. */
  listIdleMs: 60_000,
  /** Longest time until a watch is accepted. The API server itself gives up after a minute. */
  watchAnswerMs: 75_000,
  /** Longest silence of a streamed list before it is over, after which pages are tried. */
  streamIdleMs: 60_000,
  /** Watches last between this time and twice as long. */
  watchTimeoutMs: 300_000,
  /** How much longer than agreed a watch may take to end. */
  watchGraceMs: 30_000,
  /** A watch without events that ends sooner is a failure, else a server that ends all at once would be asked on and on. */
  shortWatchMs: 1_000,
  /** How long a list of so many objects is put off at most when the history is lost, after a random wait. */
  putOffMs,
};

export type ReflectorTimes = Readonly<typeof REFLECTOR_TIMES>;
