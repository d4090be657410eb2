/**
 * A growing buffer of consecutive netlink messages, ready for one `send`, and of their attributes.
 *
 *     u32 length · u16 type · u16 flags · u32 sequence · u32 port (0)    host byte order (reference nfnetlink.md §2)
 *
 * The socket fills in the sequence numbers, so messages and errors refer to a message by its position here (`index`). The
 * buffer is reused, and allocates only when it must grow.
 */
import { HOST_IS_LITTLE_ENDIAN, NLA_HDRLEN, NLA_MAX_LENGTH, NLM_F_REQUEST, NLMSG_HDRLEN } from "./constants.ts";

const TYPE_AT = 4;
const FLAGS_AT = 6;
const SEQUENCE_AT = 8;
const TWO_TO_32 = 0x1_0000_0000;

/** Rounds up to a multiple of 4, the alignment of messages and attributes. */
export function align4(length: number): number {
  return (length + 3) & ~3;
}

export class MessageBuffer {
  #memory: ArrayBuffer;
  #bytes: Buffer;
  #view: DataView;
  #length = 0;
  #starts: number[] = [];

  constructor(initialCapacity = 4096) {
    this.#memory = new ArrayBuffer(initialCapacity);
    this.#bytes = Buffer.from(this.#memory);
    this.#view = new DataView(this.#memory);
  }

  /** The number of bytes written. */
  get length(): number {
    return this.#length;
  }

  /** The written bytes; a view, valid until the next write. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  /** The whole memory, including unwritten bytes; valid until the next write. */
  get memory(): Uint8Array {
    return this.#bytes;
  }

  /** The number of messages. */
  get count(): number {
    return this.#starts.length;
  }

  /** The offset of a message; for `index` = count, that of the next one. */
  startOf(index: number): number {
    return this.#starts[index] ?? this.#length;
  }

  typeOf(index: number): number {
    return this.#view.getUint16(this.startOf(index) + TYPE_AT, HOST_IS_LITTLE_ENDIAN);
  }

  flagsOf(index: number): number {
    return this.#view.getUint16(this.startOf(index) + FLAGS_AT, HOST_IS_LITTLE_ENDIAN);
  }

  /** Sets more flags on a message. */
  addFlags(index: number, flags: number): void {
    const at = this.startOf(index) + FLAGS_AT;
    this.#view.setUint16(at, this.#view.getUint16(at, HOST_IS_LITTLE_ENDIAN) | flags, HOST_IS_LITTLE_ENDIAN);
  }

  /** Numbers the messages `first`, `first + 1`, … (modulo 2^32). */
  setSequence(first: number): void {
    for (let index = 0; index < this.#starts.length; index++) {
      this.#view.setUint32((this.#starts[index] ?? 0) + SEQUENCE_AT, first + index, HOST_IS_LITTLE_ENDIAN);
    }
  }

  /**
   * Appends a message, with NLM_F_REQUEST set.
   *
   * @param write writes what follows netlink's header: the family's own header and the attributes. If it throws, the message is dropped.
   */
  put(type: number, flags: number, write: (out: MessageBuffer) => void): void {
    this.fill(this.openMessage(type, flags), write);
  }

  /** Starts a message, with NLM_F_REQUEST set; pass the result to {@link closeMessage} after writing what follows its header. */
  openMessage(type: number, flags: number): number {
    const start = this.zeros(NLMSG_HDRLEN);
    this.#view.setUint16(start + TYPE_AT, type, HOST_IS_LITTLE_ENDIAN);
    this.#view.setUint16(start + FLAGS_AT, flags | NLM_F_REQUEST, HOST_IS_LITTLE_ENDIAN);
    return start;
  }

  /** Writes the rest of an open message and ends it. If `write` throws, the message is dropped. */
  fill(start: number, write: (out: MessageBuffer) => void): void {
    try {
      write(this);
    } catch (error) {
      this.#length = start;
      throw error;
    }
    this.closeMessage(start);
  }

  /** Ends a message: sets its length, pads, and counts it. */
  closeMessage(start: number): void {
    this.#view.setUint32(start, this.#length - start, HOST_IS_LITTLE_ENDIAN);
    this.pad();
    this.#starts.push(start);
  }

  /** Drops all messages, and the memory if it is larger than this. @default keeps it */
  reset(mostBytes = Number.POSITIVE_INFINITY): void {
    this.#length = 0;
    this.#starts = [];
    if (this.#bytes.length > mostBytes) this.#takeOver(this.#memory.transfer(0));
  }

  /** Drops all messages and frees the memory at once, without waiting for a garbage collection; existing views become empty. */
  release(): void {
    this.reset(0);
  }

  u8(value: number): void {
    const at = this.#advance(1);
    this.#view.setUint8(at, value);
  }

  u16(value: number, littleEndian = false): void {
    const at = this.#advance(2);
    this.#view.setUint16(at, value, littleEndian);
  }

  u32(value: number, littleEndian = false): void {
    const at = this.#advance(4);
    this.#view.setUint32(at, value, littleEndian);
  }

  /** A 64-bit integer. Numbers from 2^53 on are already inexact. */
  u64(value: number, littleEndian = false): void {
    const at = this.#advance(8);
    const high = Math.floor(value / TWO_TO_32);
    this.#view.setUint32(at, littleEndian ? value : high, littleEndian);
    this.#view.setUint32(at + 4, littleEndian ? high : value, littleEndian);
  }

  /** Appends zeros, to be overwritten through {@link memory}. @returns their offset. */
  zeros(count: number): number {
    const at = this.#advance(count);
    const bytes = this.#bytes;
    // Dropped bytes may still be there. For so few, a loop is faster than `fill`.
    for (let index = at; index < at + count; index += 1) bytes[index] = 0;
    return at;
  }

  /** Appends bytes as they are. */
  raw(data: Uint8Array): void {
    const at = this.#advance(data.length);
    this.#bytes.set(data, at);
  }

  /** Appends UTF-8 text without a terminator. */
  text(value: string): void {
    const size = Buffer.byteLength(value);
    const at = this.#advance(size);
    this.#bytes.write(value, at, size, "utf8");
  }

  /** Overwrites a host-order 32-bit field written earlier. */
  patchHostU32(at: number, value: number): void {
    this.#view.setUint32(at, value, HOST_IS_LITTLE_ENDIAN);
  }

  patchHostU16(at: number, value: number): void {
    this.#view.setUint16(at, value, HOST_IS_LITTLE_ENDIAN);
  }

  /** Appends zeros up to the next multiple of four. */
  pad(): void {
    const missing = align4(this.#length) - this.#length;
    if (missing > 0) this.zeros(missing);
  }

  /** Starts an attribute; pass the result to {@link closeAttribute} after writing the payload. */
  openAttribute(type: number): number {
    const start = this.#advance(NLA_HDRLEN);
    this.#view.setUint16(start, 0, HOST_IS_LITTLE_ENDIAN);
    this.#view.setUint16(start + 2, type, HOST_IS_LITTLE_ENDIAN);
    return start;
  }

  /** Ends an attribute: sets its length and pads. @throws RangeError when the payload exceeds 65,531 bytes. */
  closeAttribute(start: number): void {
    const length = this.#length - start;
    if (length > NLA_MAX_LENGTH) {
      throw new RangeError(`netlink: attribute payload of ${length - NLA_HDRLEN} bytes, the limit is 65531: split it`);
    }
    this.#view.setUint16(start, length, HOST_IS_LITTLE_ENDIAN);
    this.pad();
  }

  #advance(size: number): number {
    const at = this.#length;
    const needed = at + size;
    if (needed > this.#bytes.length) {
      this.#takeOver(this.#memory.transfer(Math.max(needed, this.#memory.byteLength * 2)));
    }
    this.#length = needed;
    return at;
  }

  /** `transfer` frees the old memory at once: tens of megabytes would otherwise wait for a garbage collection. */
  #takeOver(memory: ArrayBuffer): void {
    this.#memory = memory;
    this.#bytes = Buffer.from(memory);
    this.#view = new DataView(memory);
  }
}
