/**
 * A buffer of consecutive netlink requests, ready for one `send`.
 *
 *     u32 length · u16 type · u16 flags · u32 sequence · u32 port (0)    host byte order (reference nfnetlink.md §2)
 *
 * The socket fills in the sequence numbers, so messages and errors refer to a message by its position here (`index`).
 */
import { ByteWriter } from "./byte-writer.ts";
import { HOST_IS_LITTLE_ENDIAN, NLM_F_REQUEST } from "./constants.ts";

const TYPE_AT = 4;
const FLAGS_AT = 6;
const SEQUENCE_AT = 8;

export class MessageBuffer {
  /** Write family headers and attributes here, between `begin` and `end`. */
  readonly out: ByteWriter;
  #starts: number[] = [];
  #open = false;

  constructor(initialCapacity?: number) {
    this.out = new ByteWriter(initialCapacity);
  }

  /** The number of finished messages. */
  get count(): number {
    return this.#starts.length - (this.#open ? 1 : 0);
  }

  /** All bytes; a view, valid until the next write. */
  get bytes(): Buffer {
    return this.out.bytes;
  }

  /** The offset of a message; for `index` = count, that of the next one. */
  startOf(index: number): number {
    return this.#starts[index] ?? this.out.length;
  }

  typeOf(index: number): number {
    return this.bytes.readUInt16LE(this.startOf(index) + TYPE_AT);
  }

  /** Starts a message, with NLM_F_REQUEST set. @returns its index. */
  begin(type: number, flags: number): number {
    if (this.#open) throw new Error("netlink: begin() before end() of the previous message");
    this.#open = true;
    this.#starts.push(this.out.length);
    this.out.u32(0, HOST_IS_LITTLE_ENDIAN);
    this.out.u16(type, HOST_IS_LITTLE_ENDIAN);
    this.out.u16(flags | NLM_F_REQUEST, HOST_IS_LITTLE_ENDIAN);
    this.out.u32(0);
    this.out.u32(0);
    return this.#starts.length - 1;
  }

  end(): void {
    const start = this.#starts.at(-1);
    if (!this.#open || start === undefined) throw new Error("netlink: end() without begin()");
    this.#open = false;
    this.out.patchHostU32(start, this.out.length - start);
    this.out.pad();
  }

  /** Drops the unfinished message, after a failure between `begin` and `end`. */
  discard(): void {
    if (!this.#open) return;
    this.out.truncate(this.#starts.pop() ?? 0);
    this.#open = false;
  }

  /** Sets more flags on a finished message. */
  addFlags(index: number, flags: number): void {
    this.out.patchHostU16(this.startOf(index) + FLAGS_AT, this.flagsOf(index) | flags);
  }

  flagsOf(index: number): number {
    return this.bytes.readUInt16LE(this.startOf(index) + FLAGS_AT);
  }

  /** Numbers the messages `first`, `first + 1`, … (modulo 2^32). */
  setSequence(first: number): void {
    for (let index = 0; index < this.#starts.length; index++) {
      this.out.patchHostU32((this.#starts[index] ?? 0) + SEQUENCE_AT, (first + index) >>> 0);
    }
  }

  /** Drops all messages and frees the memory at once, without waiting for a garbage collection. */
  release(): void {
    this.out.release();
    this.#starts = [];
    this.#open = false;
  }

  /** Drops all messages and keeps the memory. */
  reset(): void {
    this.out.truncate(0);
    this.#starts = [];
    this.#open = false;
  }
}
