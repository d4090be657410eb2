/** Memory as the interpreter sees it: named ranges of bytes, outside of which nothing can be read or written. */
import type { Width } from "../../../src/kernel/bpf/layout.ts";

/** An address. Pointers into different regions cannot be compared or subtracted. */
export interface Pointer {
  readonly region: MemoryRegion;
  readonly offset: bigint;
}

/** A program accessed memory that it must not. */
export class MemoryFault extends Error {
  override readonly name = "MemoryFault";
}

export class MemoryRegion {
  readonly name: string;
  readonly bytes: Uint8Array;
  /** For stacks: which bytes were written. */
  readonly #written: Uint8Array | undefined;

  private constructor(name: string, bytes: Uint8Array, written: Uint8Array | undefined) {
    this.name = name;
    this.bytes = bytes;
    this.#written = written;
  }

  /** Bytes that all have a value. The region is a view: writes go to these bytes. */
  static of(name: string, bytes: Uint8Array): MemoryRegion {
    return new MemoryRegion(name, bytes, undefined);
  }

  /** Bytes that must be written before they are read. */
  static unwritten(name: string, size: number): MemoryRegion {
    return new MemoryRegion(name, new Uint8Array(size), new Uint8Array(size));
  }

  read(offset: bigint, width: Width): bigint {
    const bytes = this.slice(offset, width);
    const view = new DataView(bytes.buffer, bytes.byteOffset, width);
    if (width === 8) return view.getBigUint64(0, true);
    return BigInt(width === 4 ? view.getUint32(0, true) : width === 2 ? view.getUint16(0, true) : view.getUint8(0));
  }

  write(offset: bigint, width: Width, value: bigint): void {
    const at = this.#position(offset, width);
    this.#written?.fill(1, at, at + width);
    const view = new DataView(this.bytes.buffer, this.bytes.byteOffset + at, width);
    const fitted = BigInt.asUintN(width * 8, value);
    if (width === 8) view.setBigUint64(0, fitted, true);
    else if (width === 4) view.setUint32(0, Number(fitted), true);
    else if (width === 2) view.setUint16(0, Number(fitted), true);
    else view.setUint8(0, Number(fitted));
  }

  /** A view of bytes, all of which were written. */
  slice(offset: bigint, size: number): Uint8Array {
    const at = this.#position(offset, size);
    if (this.#written?.subarray(at, at + size).includes(0) === true) {
      throw new MemoryFault(`${this.name}: ${size} bytes at ${at} are read before they are written`);
    }
    return this.bytes.subarray(at, at + size);
  }

  #position(offset: bigint, size: number): number {
    const at = Number(offset);
    if (at < 0 || at + size > this.bytes.length) {
      throw new MemoryFault(`${this.name}: ${size} bytes at ${at} are outside of its ${this.bytes.length}`);
    }
    return at;
  }
}
