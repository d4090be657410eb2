/**
 * Byte layouts as data: offset, width and byte order of each field. Host order is little-endian: other hosts are
 * unsupported (reference ebpf-programs.md §4.1).
 */

export type Width = 1 | 2 | 4 | 8;

export interface Field {
  /** Offset in bytes. */
  readonly at: number;
  readonly width: Width;
  /** `network`: the most significant byte comes first, as in addresses and ports of packets. */
  readonly order: "host" | "network";
}

/** A field of bytes without byte order, such as a name. */
export interface BytesField {
  readonly at: number;
  readonly bytes: number;
}

export interface Layout<Fields extends Readonly<Record<string, Field | BytesField>>> {
  readonly name: string;
  /** Total size in bytes. */
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
export const u32 = host(4);
export const u64 = host(8);
export const be16 = network(2);
export const be32 = network(4);
export const bytes = (at: number, length: number): BytesField => ({ at, bytes: length });

/** Describes a struct. Fields may leave gaps, which {@link encode} fills with zeros. */
export const layout = <const Fields extends Readonly<Record<string, Field | BytesField>>>(
  name: string,
  size: number,
  fields: Fields,
): Layout<Fields> => ({ name, size, fields });

type FieldValue<Place> = Place extends BytesField ? Uint8Array : number | bigint;

/** Values of the fields; missing ones are zero. */
type FieldValues<Fields> = { readonly [Name in keyof Fields]?: FieldValue<Fields[Name]> };

/** Encodes a struct; unspecified bytes are zero. @throws RangeError for a value that does not fit its field. */
export function encode<Fields extends Readonly<Record<string, Field | BytesField>>>(
  what: Layout<Fields>,
  values: FieldValues<Fields>,
): Uint8Array<ArrayBuffer> {
  const target = new Uint8Array(what.size);
  for (const [name, value] of Object.entries<number | bigint | Uint8Array | undefined>(values)) {
    const place = what.fields[name];
    if (place === undefined || value === undefined) continue;
    if ("width" in place && typeof value !== "object") putNumber(target, place, value, `${what.name}.${name}`);
    else if ("bytes" in place && typeof value === "object" && value.length <= place.bytes) target.set(value, place.at);
    else throw new RangeError(`${what.name}.${name} has no room for ${value}`);
  }
  return target;
}

const viewOf = ({ buffer, byteOffset, byteLength }: Uint8Array): DataView =>
  new DataView(buffer, byteOffset, byteLength);

/** Writes one field. @throws RangeError for a value that does not fit. */
export function putNumber(target: Uint8Array, field: Field, value: number | bigint, name = "field"): void {
  const { at, width, order } = field;
  const wide = BigInt(value);
  if (BigInt.asUintN(8 * width, wide) !== wide)
    throw new RangeError(`${name} has ${width} bytes, and cannot hold ${wide}`);
  const [view, isLittle] = [viewOf(target), order === "host"];
  if (width === 8) view.setBigUint64(at, wide, isLittle);
  else if (width === 4) view.setUint32(at, Number(wide), isLittle);
  else if (width === 2) view.setUint16(at, Number(wide), isLittle);
  else view.setUint8(at, Number(wide));
}

/** Reads one field. @throws RangeError outside of the source. */
export function takeNumber(source: Uint8Array, field: Field): number {
  const { at, width, order } = field;
  const [view, isLittle] = [viewOf(source), order === "host"];
  if (width === 8) return Number(view.getBigUint64(at, isLittle));
  if (width === 4) return view.getUint32(at, isLittle);
  return width === 2 ? view.getUint16(at, isLittle) : view.getUint8(at);
}

/** Reads an 8-byte field, exactly. */
export const takeWide = (source: Uint8Array, { at, order }: Field): bigint =>
  viewOf(source).getBigUint64(at, order === "host");
