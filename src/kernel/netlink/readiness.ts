/**
 * Waits until descriptors are readable: one worker thread polls all of them, as long as there are waits. Node.js has four worker threads,
 * also for files and DNS, and otherwise each subscription to kernel notifications would occupy one for its whole life.
 */
import { closeSync, readSync, writeSync } from "node:fs";
import { systemError } from "./errors.ts";
import { libc } from "./libc.ts";

const POLLIN = 1;
/** `struct pollfd`: i32 descriptor · i16 wanted events · i16 events that happened. */
export const POLLFD_BYTES = 8;
const EFD_FLAGS = 0o2000000 | 0o4000;

interface Wait {
  readonly end: (isReadable: boolean) => void;
  readonly fail: (error: unknown) => void;
}

/** By descriptor. */
const waits = new Map<number, Wait>();
/** Waits that are over, but whose descriptors a running poll still uses. */
const ended: Wait[] = [];
let isPolling = false;
/** An eventfd that interrupts the running poll when the set of waits has changed; undefined when none is running. */
let wakeFd: number | undefined;

/** Resolves to true when the descriptor is readable, to false on timeout (-1: none) or {@link endWait}. One wait per descriptor. */
export async function untilReadable(fd: number, timeoutMs: number): Promise<boolean> {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  const timer = timeoutMs < 0 ? undefined : setTimeout(() => endWait(fd), timeoutMs);
  waits.set(fd, { end: resolve, fail: reject });
  if (isPolling) wake();
  else void pollAll();
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
  }
}

/** Ends the wait for a descriptor, if there is one. */
export function endWait(fd: number): void {
  const wait = waits.get(fd);
  if (wait === undefined) return;
  waits.delete(fd);
  if (wakeFd === undefined) wait.end(false);
  else ended.push(wait);
  wake();
}

/** Writes one `struct pollfd` that waits for input. */
export function putPollFd(bytes: Buffer, at: number, fd: number): void {
  bytes.writeInt32LE(fd, at);
  bytes.writeInt32LE(POLLIN, at + 4);
}

function wake(): void {
  if (wakeFd !== undefined) writeSync(wakeFd, new BigUint64Array([1n]));
}

async function pollAll(): Promise<void> {
  const calls = libc();
  const own = calls.eventfd(0, EFD_FLAGS);
  isPolling = true;
  // A worker thread in poll() would keep the process from exiting.
  process.once("exit", wake);
  try {
    if (own < 0) throw systemError("eventfd", calls.errno());
    while (waits.size > 0) {
      const asked = [...waits];
      const fds = Buffer.alloc(POLLFD_BYTES * (asked.length + 1));
      for (const [at, fd] of [own, ...asked.map(([one]) => one)].entries()) putPollFd(fds, at * POLLFD_BYTES, fd);
      wakeFd = own;
      await calls.poll(fds, asked.length + 1, -1);
      wakeFd = undefined;
      const hasHappened = (at: number): boolean => fds.readUInt16LE(at * POLLFD_BYTES + 6) !== 0;
      if (hasHappened(0)) readSync(own, Buffer.alloc(8));
      for (const wait of ended.splice(0)) wait.end(false);
      for (const [at, [fd, wait]] of asked.entries()) {
        // The descriptor may belong to another wait by now.
        if (!hasHappened(at + 1) || waits.get(fd) !== wait) continue;
        waits.delete(fd);
        wait.end(true);
      }
    }
  } catch (error) {
    for (const wait of [...ended.splice(0), ...waits.values()]) wait.fail(error);
    waits.clear();
  } finally {
    isPolling = false;
    wakeFd = undefined;
    process.removeListener("exit", wake);
    if (own >= 0) closeSync(own);
  }
}
