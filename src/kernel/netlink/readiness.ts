/**
 * Waits until descriptors can be read: one worker thread for all of them, while any is waited for. The runtime has four threads, for files and
 * names too, and each subscription to the kernel's news would keep one of them as long as it lasts.
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
/** Over, while a poll still has their descriptors. */
const ended: Wait[] = [];
let isPolling = false;
/** While a poll is under way: written to, it ends one that does not know of all, or knows of too many. */
let wakeFd: number | undefined;

/** Resolves to true when it can be read, to false when the time is over (-1: no limit) or the wait is ended. One wait at a time. */
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

/** Puts a descriptor into an array of `struct pollfd`. */
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
  // A worker thread in poll() would hold up the end of the process.
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
        // It may be that of another wait by now.
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
