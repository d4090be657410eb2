/** A growing byte buffer with netlink's attribute framing. It is reused between messages, and allocates only when it must grow. */
import { align4, HOST_IS_LITTLE_ENDIAN, NLA_HDRLEN, NLA_MAX_LENGTH } from "./constants.ts";

const TWO_TO_32 = 0x1_0000_0000;

export class ByteWriter {
  #memory: ArrayBuffer;
  #bytes: Buffer;
  #view: DataView;
  #length = 0;

  constructor(initialCapacity = 4096) {
    this.#memory = new ArrayBuffer(initialCapacity);
    this.#bytes = Buffer.from(this.#memory);
    this.#view = new DataView(this.#memory);
  }

  /** The number of bytes written. */
  get length(): number {
    return this.#length;
  }

  /** The size up to which it need not grow. */
  get capacity(): number {
    return this.#bytes.length;
  }

  /** The written bytes; a view, valid until the next write. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Drops everything from `length` on. */
  truncate(length: number): void {
    this.#length = length;
  }

  /** Drops everything and frees the memory; existing views become empty. */
  release(): void {
    this.#length = 0;
    this.#takeOver(this.#memory.transfer(0));
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

  /** The whole memory, including unwritten bytes; valid until the next write. */
  get memory(): Uint8Array {
    return this.#bytes;
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
    this.patchHostU16(start, length);
    this.pad();
  }

  #advance(size: number): number {
    const at = this.#length;
    const needed = at + size;
    if (needed > this.#bytes.length) this.#grow(needed);
    this.#length = needed;
    return at;
  }

  #grow(needed: number): void {
    this.#takeOver(this.#memory.transfer(Math.max(needed, this.#memory.byteLength * 2)));
  }

  /** `transfer` frees the old memory at once: tens of megabytes would otherwise wait for a garbage collection. */
  #takeOver(memory: ArrayBuffer): void {
    this.#memory = memory;
    this.#bytes = Buffer.from(memory);
    this.#view = new DataView(memory);
  }
}
