/**
 * Byte layouts as data: a name, an offset and a width for each field. One description serves the program that reads a map, the code
 * that writes the map, and the attributes of bpf(2). Host order is little-endian: other hosts are refused (reference
 * ebpf-programs.md §4.1).
 */

export type Width = 1 | 2 | 4 | 8;

export interface Field {
  /** Offset in bytes. */
  readonly at: number;
  readonly width: Width;
  /** `network`: the number's first byte is its highest, as in addresses and ports of packets. */
  readonly order: "host" | "network";
}

/** A field of bytes without an order, such as a name. */
export interface BytesField {
  readonly at: number;
  readonly bytes: number;
}

export interface Layout<Fields extends Readonly<Record<string, Field | BytesField>>> {
  readonly name: string;
  /** Bytes of the whole. */
  readonly size: number;
  readonly fields: Fields;
}

const host =
  (width: Width) =>
  (at: number): Field => ({ at, width, order: "host" });
const network =
  (width: Width) =>
  (at: number): Field => ({ at, width, order: "network" });

export const u8 = host(1);
export const u16 = host(2);
export const u32 = host(4);
export const u64 = host(8);
export const be16 = network(2);
export const be32 = network(4);
export const bytes = (at: number, length: number): BytesField => ({ at, bytes: length });

/**
 * Describes a struct. @throws Error for fields that are not aligned, overlap or reach beyond `size`.
 * Fields may leave gaps; {@link encode} writes zeroes there.
 */
export function layout<const Fields extends Readonly<Record<string, Field | BytesField>>>(
  name: string,
  size: number,
  fields: Fields,
): Layout<Fields> {
  let end = 0;
  for (const [field, place] of Object.entries(fields).toSorted(([, one], [, other]) => one.at - other.at)) {
    if (place.at < end)
      throw new Error(`${name}.${field} at ${place.at} overlaps the field before it, which ends at ${end}`);
    if ("width" in place && place.at % place.width !== 0) throw new Error(`${name}.${field} is not aligned`);
    end = place.at + sizeOf(place);
  }
  if (end > size) throw new Error(`${name}: its fields need ${end} bytes, and it has ${size}`);
  return { name, size, fields };
}

const sizeOf = (field: Field | BytesField): number => ("width" in field ? field.width : field.bytes);

type FieldValue<Place> = Place extends BytesField ? Uint8Array : number | bigint;

/** What each field is to hold; what is left out is zero. */
type FieldValues<Fields> = { readonly [Name in keyof Fields]?: FieldValue<Fields[Name]> };

/** Bytes of a struct, zeroes where nothing is given. @throws RangeError for a value that does not fit its field. */
export function encode<Fields extends Readonly<Record<string, Field | BytesField>>>(
  what: Layout<Fields>,
  values: FieldValues<Fields>,
  target = new Uint8Array(what.size),
): Uint8Array {
  for (const [name, value] of Object.entries<number | bigint | Uint8Array | undefined>(values)) {
    const place = what.fields[name];
    if (place === undefined) throw new RangeError(`${what.name} has no field ${name}`);
    if (value === undefined) continue;
    if ("width" in place) {
      if (typeof value === "object") throw new RangeError(`${what.name}.${name} is a number`);
      putNumber(target, place, value, `${what.name}.${name}`);
    } else {
      if (typeof value !== "object" || value.length > place.bytes) {
        throw new RangeError(`${what.name}.${name} holds at most ${place.bytes} bytes`);
      }
      target.set(value, place.at);
    }
  }
  return target;
}

/** Writes one field. */
export function putNumber(target: Uint8Array, field: Field, value: number | bigint, name = "field"): void {
  const wide = BigInt(value);
  if (wide < 0n || wide >= 1n << BigInt(field.width * 8)) {
    throw new RangeError(`${name} has ${field.width} bytes, and cannot hold ${wide}`);
  }
  for (let index = 0; index < field.width; index++) {
    const shift = field.order === "host" ? index : field.width - 1 - index;
    target[field.at + index] = Number((wide >> BigInt(shift * 8)) & 0xffn);
  }
}

/** Reads one field of up to 4 bytes. Without the numbers of {@link takeWide}, each of which is allocated. */
export function takeNumber(source: Uint8Array, field: Field): number {
  const { at, width, order } = field;
  if (width === 8) return Number(takeWide(source, field));
  let value = 0;
  for (let index = 0; index < width; index++) {
    const byte = source[at + (order === "host" ? width - 1 - index : index)];
    if (byte === undefined) throw new RangeError(`a field at ${at} lies outside of ${source.length} bytes`);
    value = value * 256 + byte;
  }
  return value;
}

/** Reads one field of any width. */
export function takeWide(source: Uint8Array, field: Field): bigint {
  let value = 0n;
  for (let index = 0; index < field.width; index++) {
    const byte = source[field.at + index];
    if (byte === undefined) throw new RangeError(`a field at ${field.at} lies outside of ${source.length} bytes`);
    const shift = field.order === "host" ? index : field.width - 1 - index;
    value |= BigInt(byte) << BigInt(shift * 8);
  }
  return value;
}
