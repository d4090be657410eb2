/**
 * Writes log lines to standard output and error synchronously: the kernel has a line when the call returns, so process.exit loses
 * nothing and nothing piles up in memory. A slow reader costs a bounded wait, and then lines are lost until it reads again.
 */
import { constants, fstatSync, openSync, writeSync } from "node:fs";
import { attempt } from "./attempt.ts";

export type LogStream = "stdout" | "stderr";

/** Takes one or more whole lines, newline included. Must not throw and must have written when it returns. */
export type WriteLog = (stream: LogStream, lines: string) => void;

/** The system calls that the writer needs. */
export interface StreamIo {
  /** Writes some of the bytes to the file descriptor. @returns how many. @throws `EAGAIN` if it would block. */
  writeSome(fd: number, bytes: Uint8Array): number;
  /** Blocks the thread. */
  pause(milliseconds: number): void;
}

const FILE_DESCRIPTOR: Readonly<Record<LogStream, number>> = { stdout: 1, stderr: 2 };
const PAUSE_MS = 2;
const MAX_PAUSES = 50;

const pauseCell = new Int32Array(new SharedArrayBuffer(4));

/** By descriptor: a non-blocking one for the same pipe. */
const unblocked = new Map<number, number>();

/** A second, non-blocking descriptor of a pipe, so that other processes' descriptors still block; otherwise `fd` itself. */
function unblockedOf(fd: number): number {
  const known = unblocked.get(fd);
  if (known !== undefined) return known;
  const flags = constants.O_WRONLY | constants.O_NONBLOCK;
  const own = attempt(() => (fstatSync(fd).isFIFO() ? openSync(`/proc/self/fd/${fd}`, flags) : fd)) ?? fd;
  unblocked.set(fd, own);
  return own;
}

const hostIo: StreamIo = {
  writeSome: (fd, bytes) => writeSync(unblockedOf(fd), bytes),
  pause: (milliseconds) => {
    Atomics.wait(pauseCell, 0, 0, milliseconds);
  },
};

/**
 * Makes the writer of a process's own standard streams.
 *
 * @param lostLine the line that reports `count` lost writes; written as soon as the stream accepts data again.
 */
export function standardStreams(lostLine: (count: number) => string, io: StreamIo = hostIo): WriteLog {
  const states = {
    stdout: { lost: 0, isMidLine: false },
    stderr: { lost: 0, isMidLine: false },
  };

  /** @returns how many bytes the stream accepted. */
  function writeAll(fd: number, bytes: Uint8Array, mostPauses: number): number {
    let written = 0;
    let pauses = 0;
    while (written < bytes.length) {
      try {
        written += io.writeSome(fd, bytes.subarray(written));
      } catch (error) {
        // Waiting helps only with a full pipe; there is nowhere to report other errors (a closed pipe, a full disk).
        const isFull = error instanceof Error && "code" in error && error.code === "EAGAIN";
        if (!isFull || pauses === mostPauses) return written;
        pauses += 1;
        io.pause(PAUSE_MS);
      }
    }
    return written;
  }

  return (stream, lines) => {
    const state = states[stream];
    const repair = state.isMidLine ? "\n" : "";
    const notice = state.lost > 0 ? lostLine(state.lost) : "";
    const bytes = Buffer.from(repair + notice + lines);
    // A reader that was too slow before may be gone: waiting again with every line would stall the program.
    const written = writeAll(FILE_DESCRIPTOR[stream], bytes, state.lost > 0 ? 0 : MAX_PAUSES);
    if (written === bytes.length) {
      state.lost = 0;
      state.isMidLine = false;
    } else {
      state.lost += 1;
      state.isMidLine = written > 0 || state.isMidLine;
    }
  };
}
