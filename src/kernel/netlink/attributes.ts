/**
 * Attribute codecs: one table per object type drives encoding and decoding.
 *
 *     const counter = attributes({ bytes: [1, u64be], packets: [2, u64be] });
 *     counter.write(out, { bytes: 0, packets: 0 });
 *     counter.read(input, start, end); // { bytes, packets }
 *
 * Every field is optional, as in the kernel. Fields are written in table order. Unknown attributes are skipped (newer
 * kernels send more); broken framing throws a `malformed` {@link NetlinkError}, so garbage causes neither a crash nor
 * an endless loop.
 */
import { HOST_IS_LITTLE_ENDIAN, NLA_F_NESTED, NLA_F_NET_BYTEORDER, NLA_HDRLEN, NLA_TYPE_MASK } from "./constants.ts";
import { malformed } from "./errors.ts";
import { align4, type MessageBuffer } from "./message-buffer.ts";

/** Two views of received bytes. The next receive may overwrite them, so codecs copy what they keep. */
export interface ByteReader {
  readonly bytes: Buffer;
  readonly view: DataView;
}

/** Views of existing bytes, without a copy. */
export function byteReader(data: Uint8Array): ByteReader {
  return {
    bytes: Buffer.from(data.buffer, data.byteOffset, data.length),
    view: new DataView(data.buffer, data.byteOffset, data.length),
  };
}

/** Writes and reads one attribute payload. */
export interface Codec<T> {
  /** Whether the payload consists of attributes (sets the NESTED bit). */
  readonly nested: boolean;
  /** Whether to mark the payload as big-endian (sets the NET_BYTEORDER bit). */
  readonly netByteOrder?: boolean;
  write(out: MessageBuffer, value: T): void;
  /** Reads the payload `[start, end)`. Throws `malformed`. */
  read(input: ByteReader, start: number, end: number): T;
}

type Fields = Readonly<Record<string, readonly [type: number, codec: Codec<unknown>]>>;

/** The object that a table of attributes describes. */
export type Attributes<F extends Fields> = {
  readonly [K in keyof F]?: (F[K] extends readonly [number, Codec<infer T>] ? T : never) | undefined;
};

/** The value type of a codec. */
export type ValueOf<C> = C extends Codec<infer T> ? T : never;

/**
 * Calls `visit` with the type, payload start and payload end of each attribute in `[start, end)`. Throws `malformed` on
 * impossible lengths.
 */
export function forEachAttribute(
  input: ByteReader,
  start: number,
  end: number,
  visit: (type: number, start: number, end: number) => void,
): void {
  if (end > input.bytes.length) throw malformed("attributes end outside the message", input.bytes, end);
  let offset = start;
  while (offset + NLA_HDRLEN <= end) {
    const length = input.view.getUint16(offset, HOST_IS_LITTLE_ENDIAN);
    if (length < NLA_HDRLEN || offset + length > end) {
      throw malformed(`attribute length ${length} with ${end - offset} bytes left`, input.bytes, offset);
    }
    const type = input.view.getUint16(offset + 2, HOST_IS_LITTLE_ENDIAN) & NLA_TYPE_MASK;
    visit(type, offset + NLA_HDRLEN, offset + length);
    offset += align4(length);
  }
  if (offset < end) throw malformed(`${end - offset} stray bytes after the attributes`, input.bytes, offset);
}

/**
 * Stores at `places[type]` where the payload of each attribute begins; 0 if there is none. For messages that come by the thousand, where
 * the objects of a codec would cost more than everything else. Throws `malformed` on impossible lengths.
 *
 * @param places one entry for each type of interest; higher types are skipped.
 */
export function placeAttributes(input: ByteReader, start: number, end: number, places: Int32Array): void {
  const { view } = input;
  if (end > view.byteLength) throw malformed("attributes end outside the message", input.bytes, end);
  // Cheaper than `fill` for so few entries.
  for (let type = 0; type < places.length; type += 1) places[type] = 0;
  for (let at = start; at + NLA_HDRLEN <= end; ) {
    const length = view.getUint16(at, HOST_IS_LITTLE_ENDIAN);
    if (length < NLA_HDRLEN || at + length > end) {
      throw malformed(`attribute length ${length} with ${end - at} bytes left`, input.bytes, at);
    }
    const type = view.getUint16(at + 2, HOST_IS_LITTLE_ENDIAN) & NLA_TYPE_MASK;
    if (type < places.length) places[type] = at + NLA_HDRLEN;
    at += align4(length);
  }
}

/** The end of the payload that begins at `at`. */
export function endOfAttribute(input: ByteReader, at: number): number {
  return at - NLA_HDRLEN + input.view.getUint16(at - NLA_HDRLEN, HOST_IS_LITTLE_ENDIAN);
}

/** The unsigned big-endian number at a place from {@link placeAttributes}; undefined for 0. Throws `malformed`. */
export function numberAt(input: ByteReader, at: number | undefined): number | undefined {
  if (at === undefined || at === 0) return undefined;
  const size = endOfAttribute(input, at) - at;
  if (size === 1) return input.view.getUint8(at);
  if (size === 2) return input.view.getUint16(at);
  if (size === 4) return input.view.getUint32(at);
  if (size === 8) return readU64(input.view, at, false);
  throw malformed(`a number of ${size} bytes`, input.bytes, at);
}

/**
 * Whether two runs of attributes are equal, in the same order. Type flags are not compared, since the kernel omits NESTED in many
 * of its listings; only the first run tells which attributes are nested.
 */
export function sameAttributes(
  a: ByteReader,
  [start, end]: readonly [start: number, end: number],
  b: ByteReader,
  [otherStart, otherEnd]: readonly [start: number, end: number],
): boolean {
  if (end - start !== otherEnd - otherStart) return false;
  const shift = otherStart - start;
  for (let at = start; at + NLA_HDRLEN <= end; ) {
    const length = a.view.getUint16(at, HOST_IS_LITTLE_ENDIAN);
    const type = a.view.getUint16(at + 2, HOST_IS_LITTLE_ENDIAN);
    const otherType = b.view.getUint16(at + shift + 2, HOST_IS_LITTLE_ENDIAN);
    if (length < NLA_HDRLEN || at + length > end) return false;
    if (length !== b.view.getUint16(at + shift, HOST_IS_LITTLE_ENDIAN)) return false;
    if (((type ^ otherType) & NLA_TYPE_MASK) !== 0) return false;
    const from = at + NLA_HDRLEN;
    const to = at + length;
    const isSame =
      (type & NLA_F_NESTED) === 0
        ? sameBytes(a, from, to, b, shift)
        : sameAttributes(a, [from, to], b, [from + shift, to + shift]);
    if (!isSame) return false;
    at += align4(length);
  }
  return true;
}

function sameBytes(a: ByteReader, start: number, end: number, b: ByteReader, shift: number): boolean {
  for (let at = start; at < end; at += 1) if (a.bytes[at] !== b.bytes[at + shift]) return false;
  return true;
}

/** A codec from a table of attributes. */
export function attributes<const F extends Fields>(fields: F): Codec<Attributes<F>> {
  const entries = Object.entries(fields).map(([key, [type, codec]]) => ({ key, type, codec }));
  const byType: ((typeof entries)[number] | undefined)[] = [];
  for (const entry of entries) byType[entry.type] = entry;
  return {
    nested: true,
    write(out, value) {
      const values: Readonly<Record<string, unknown>> = value;
      for (const { key, type, codec } of entries) {
        const item = values[key];
        if (item === undefined) continue;
        writeAttribute(out, type, codec, item);
      }
    },
    read(input, start, end) {
      const result: Record<string, unknown> = {};
      forEachAttribute(input, start, end, (type, from, to) => {
        const entry = byType[type];
        if (entry !== undefined) result[entry.key] = entry.codec.read(input, from, to);
      });
      return result as Attributes<F>; // each key was read by the codec that gives it its type
    },
  };
}

export function writeAttribute<T>(out: MessageBuffer, type: number, codec: Codec<T>, value: T): void {
  const marks = (codec.nested ? NLA_F_NESTED : 0) | (codec.netByteOrder === true ? NLA_F_NET_BYTEORDER : 0);
  const start = out.openAttribute(type | marks);
  codec.write(out, value);
  out.closeAttribute(start);
}

/** A nest with one attribute of `elementType` per value; when reading, any type is accepted. */
export function list<T>(elementType: number, element: Codec<T>): Codec<readonly T[]> {
  return {
    nested: true,
    write(out, values) {
      for (const value of values) writeAttribute(out, elementType, element, value);
    },
    read(input, start, end) {
      const result: T[] = [];
      forEachAttribute(input, start, end, (_type, from, to) => {
        result.push(element.read(input, from, to));
      });
      return result;
    },
  };
}

const TWO_TO_32 = 0x1_0000_0000;

function readU64(view: DataView, at: number, littleEndian: boolean): number {
  const first = view.getUint32(at, littleEndian);
  const second = view.getUint32(at + 4, littleEndian);
  return littleEndian ? second * TWO_TO_32 + first : first * TWO_TO_32 + second;
}

/** By size in bytes. */
const READERS = {
  1: (view: DataView, at: number) => view.getUint8(at),
  2: (view: DataView, at: number, littleEndian: boolean) => view.getUint16(at, littleEndian),
  4: (view: DataView, at: number, littleEndian: boolean) => view.getUint32(at, littleEndian),
  8: readU64,
};

/** A number of so many bytes, which is not negative. */
function unsigned(
  size: keyof typeof READERS,
  write: (out: MessageBuffer, value: number) => void,
  littleEndian = false,
): Codec<number> {
  const get = READERS[size];
  return {
    nested: false,
    write,
    read(input, start, end) {
      if (end - start !== size) {
        throw malformed(`payload of ${end - start} bytes where ${size} are expected`, input.bytes, start);
      }
      return get(input.view, start, littleEndian);
    },
  };
}

const LE = HOST_IS_LITTLE_ENDIAN;

export const u8 = unsigned(1, (out, value) => out.u8(value));
export const u16be = unsigned(2, (out, value) => out.u16(value));
export const u16host = unsigned(2, (out, value) => out.u16(value, LE), LE);
export const u32be = unsigned(4, (out, value) => out.u32(value));
export const u32host = unsigned(4, (out, value) => out.u32(value, LE), LE);
/** Signed, two's complement: chain priorities and verdict codes. */
export const i32be: Codec<number> = { ...u32be, read: (input, start, end) => u32be.read(input, start, end) | 0 };
/** Handles, timeouts, counters. Values from 2^53 on are rounded. */
export const u64be = unsigned(8, (out, value) => out.u64(value));
export const u64host = unsigned(8, (out, value) => out.u64(value, LE), LE);

/** Marks a payload as big-endian when writing. ipset requires the mark, but does not always send it. */
export function marked<T>(codec: Codec<T>): Codec<T> {
  return { ...codec, netByteOrder: true };
}

/** Zero-terminated text. Writing throws if the text contains a zero; reading stops at the first. */
export const zstring: Codec<string> = {
  nested: false,
  write(out, value) {
    if (value.includes("\0")) throw new RangeError(`netlink: text with a zero byte: ${JSON.stringify(value)}`);
    out.text(value);
    out.u8(0);
  },
  read(input, start, end) {
    const zero = input.bytes.indexOf(0, start);
    return input.bytes.toString("utf8", start, zero < 0 || zero > end ? end : zero);
  },
};

/** Bytes as they are; reading copies. */
export const binary: Codec<Uint8Array> = {
  nested: false,
  write: (out, value) => out.raw(value),
  read: (input, start, end) => new Uint8Array(input.bytes.subarray(start, end)),
};

/** An attribute without a payload: its presence means true. */
export const flag: Codec<boolean> = {
  nested: false,
  write() {},
  read: () => true,
};
