/**
 * One direction of a connection: what the source sends is written to the sink, and the end of it too. Reading pauses while
 * the kernel has no room for what was read, so at most one buffer of bytes waits here.
 *
 * Reads go into a buffer of our own (`onread`): no allocation per read, and no pass through the readable stream. That halves
 * the processor time per byte next to `source.pipe(sink)`.
 */
import { type OnReadOpts, Socket, type SocketConstructorOpts } from "node:net";
import type { FairTurns } from "./fair-turns.ts";
import { type ReadBuffers, SMALL_READ_BYTES } from "./read-buffers.ts";

/** Shared by all flows of a process. */
export interface FlowShared {
  readonly buffers: ReadBuffers;
  readonly turns: FairTurns;
}

export class ByteFlow {
  readonly #shared: FlowShared;
  readonly #onBytes: (count: number) => void;
  #source: Socket | undefined;
  #sink: Socket | undefined;
  #buffer: Buffer | undefined;
  /** Whether a larger or the small buffer would suit, as the last read tells. */
  #wanted: "large" | "small" | "same" = "same";
  /** Whether the kernel still reads from the buffer. */
  #isWriting = false;

  /** @param onBytes told of every write. */
  constructor(shared: FlowShared, onBytes: (count: number) => void) {
    this.#shared = shared;
    this.#onBytes = onBytes;
  }

  /** For the constructor of the source: it then reads through this flow. */
  readonly onread: OnReadOpts = {
    buffer: () => this.#nextBuffer(),
    callback: (count, buffer) => this.#forward(buffer, count),
  };

  /** Names both ends, before the source reads anything. */
  connect(source: Socket, sink: Socket): void {
    this.#source = source;
    this.#sink = sink;
    source.once("end", () => sink.end());
  }

  /** Gives the memory back. Both sockets must be closed. */
  release(): void {
    if (this.#buffer !== undefined) this.#shared.buffers.giveBack(this.#buffer);
    this.#buffer = undefined;
  }

  /** Writes a part of the buffer. @returns whether the source may read on at once. */
  #forward(bytes: Uint8Array, count: number): boolean {
    const sink = this.#sink;
    if (sink === undefined || sink.destroyed) return false;
    this.#wanted = count === bytes.length ? "large" : count <= SMALL_READ_BYTES ? "small" : "same";
    this.#onBytes(count);
    this.#isWriting = true;
    sink.write(count === bytes.length ? bytes : bytes.subarray(0, count), this.#onWritten);
    // Usually the kernel took everything at once; the callback comes later all the same.
    this.#isWriting = sink.writableLength > 0;
    if (this.#isWriting) return false;
    return count <= SMALL_READ_BYTES || this.#shared.turns.mayGoOn(this.#readOn);
  }

  readonly #onWritten = (): void => {
    if (!this.#isWriting || this.#sink?.writableLength !== 0) return;
    this.#isWriting = false;
    this.#readOn();
  };

  readonly #readOn = (): void => {
    this.#source?.resume();
  };

  /** Asked after every read. While the kernel reads from the buffer, nothing is read into it: the source is paused. */
  #nextBuffer(): Buffer {
    const current = this.#buffer;
    if (current === undefined) {
      this.#buffer = this.#shared.buffers.takeSmall();
      return this.#buffer;
    }
    if (this.#isWriting || this.#wanted === "same") return current;
    const isSmall = current.length === SMALL_READ_BYTES;
    if (isSmall === (this.#wanted === "small")) return current;
    const next = isSmall ? this.#shared.buffers.takeLarge() : this.#shared.buffers.takeSmall();
    if (next === undefined) return current;
    this.#shared.buffers.giveBack(current);
    this.#buffer = next;
    return next;
  }
}

/**
 * Makes an accepted socket read through a flow. `net.Server` gives no way to say so when it makes the socket, so another
 * one is made around its handle, as `net.Server` itself does. The given socket must not be used any more.
 */
export function readThrough(flow: ByteFlow, accepted: Socket): Socket {
  const handle: unknown = Reflect.get(accepted, "_handle");
  if (typeof handle !== "object" || handle === null) return readByEvents(flow, accepted);
  const options: SocketConstructorOpts = { allowHalfOpen: true, onread: flow.onread };
  Reflect.set(options, "handle", handle);
  // Without its handle there is nothing of it to destroy.
  Reflect.set(accepted, "_handle", null);
  return new Socket(options);
}

/** The same for a socket of which nothing is known but its public face, at the price of a pipe. */
export function readByEvents(flow: ByteFlow, socket: Socket): Socket {
  socket.on("data", (chunk) => {
    if (!flow.onread.callback(chunk.length, chunk)) socket.pause();
  });
  return socket.resume();
}
