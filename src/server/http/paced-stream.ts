/**
 * A connection that is read only as fast as it is answered. Node's HTTP parser takes all that arrives at once, up to 64 KiB,
 * and starts every request in it; here it gets a small piece at a time, and none while there is something to answer.
 */
import type { Socket } from "node:net";
import { Duplex } from "node:stream";

/** Holds a few dozen of the shortest requests. */
const PIECE_BYTES = 1024;
/** A client that has sent its last byte may be gone: the end is passed on when nothing has been written for this long. */
const END_MS = 1_000;

interface PacedStream {
  readonly stream: Duplex;
  /** Call when `isReady` has become true. */
  resume(): void;
}

/**
 * Wraps an accepted socket, whose server must have `allowHalfOpen`. Destroying either destroys the other.
 *
 * @param isReady whether more may be read now.
 */
export function pacedStream(socket: Socket, isReady: () => boolean): PacedStream {
  let rest: Buffer | undefined;
  let isWanted = false;
  let hasEnded = false;
  /** Whether something was written since the last check of {@link END_MS}. */
  let hasWritten = false;
  let endTimer: NodeJS.Timeout | undefined;

  const stream = new Duplex({
    readableHighWaterMark: 1,
    read() {
      isWanted = true;
      give();
    },
    write(chunk, _encoding, done) {
      hasWritten = true;
      socket.write(chunk, done);
    },
    writev(chunks, done) {
      hasWritten = true;
      socket.write(Buffer.concat(chunks.map(({ chunk }) => chunk)), done);
    },
    final(done) {
      socket.destroySoon();
      done();
    },
    destroy(error, done) {
      clearTimeout(endTimer);
      socket.destroy();
      done(error);
    },
  });

  function give(): void {
    if (!isWanted || stream.destroyed || !isReady()) return;
    if (rest !== undefined) {
      isWanted = false;
      const piece = rest.subarray(0, PIECE_BYTES);
      rest = rest.length > PIECE_BYTES ? rest.subarray(PIECE_BYTES) : undefined;
      stream.push(piece);
    } else if (hasEnded) {
      giveEnd();
    } else {
      socket.resume();
    }
  }

  /** Passes the end on once everything before it has been read and no answer is being written. */
  function giveEndWhenRead(): void {
    if (rest === undefined && !hasWritten) giveEnd();
    else {
      hasWritten = false;
      endTimer = setTimeout(giveEndWhenRead, END_MS);
    }
  }

  function giveEnd(): void {
    isWanted = false;
    clearTimeout(endTimer);
    stream.push(null);
  }

  socket.on("data", (bytes: Buffer) => {
    rest = bytes;
    socket.pause();
    give();
    // A client that hangs up during an answer is only noticed if its socket is read.
    if (rest === undefined) socket.resume();
  });
  socket.on("end", () => {
    hasEnded = true;
    hasWritten = false;
    if (isReady()) give();
    else endTimer = setTimeout(giveEndWhenRead, END_MS);
  });
  socket.on("error", () => {});
  socket.on("close", () => stream.destroy());
  return { stream, resume: give };
}
