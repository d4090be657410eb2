/**
 * Protobuf messages → the objects that `JSON.parse` would make from their JSON. Fields that a schema does not name are
 * skipped by their length, so they allocate nothing.
 */
import { isJsonObject } from "../../../../model/projection/fields.ts";
import { FormatError } from "./pieces.ts";

/** A string, a boolean, an int32, a map of strings, raw bytes, or a message. */
type FieldType = "text" | "bool" | "int" | "map" | "bytes" | Message;

interface Field {
  readonly name: string;
  readonly type: FieldType;
  readonly isList: boolean;
}

/** The used fields of a message, each at its number. */
export type Message = readonly (Field | undefined)[];

/** Creates a schema from the used fields: name → number, type, and whether it is repeated. */
export function message(fields: Readonly<Record<string, readonly [number, FieldType, "list"?]>>): Message {
  const byNumber: (Field | undefined)[] = [];
  for (const [name, [number, type, list]] of Object.entries(fields)) {
    byNumber[number] = { name, type, isList: list !== undefined };
  }
  return Array.from(byNumber);
}

/** Wire types: the low three bits of a field's tag. */
const VARINT = 0;
const FIXED_64 = 1;
const LENGTH_FIRST = 2;
const FIXED_32 = 5;

/** Decodes a message. Omits empty strings, as the JSON does. @throws FormatError */
export function decode(schema: Message, bytes: Buffer): Record<string, unknown> {
  return new Decoder(bytes).fields(schema, bytes.length);
}

class Decoder {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  fields(schema: Message, end: number): Record<string, unknown> {
    const object: Record<string, unknown> = {};
    while (this.#at < end) {
      const tag = this.#varint();
      const field = schema[tag >>> 3];
      switch (tag & 7) {
        case VARINT: {
          const value = this.#varint();
          if (field === undefined) break;
          if (field.type === "int") object[field.name] = value;
          else if (field.type === "bool") object[field.name] = value !== 0;
          else throw otherType(field.name);
          break;
        }
        case LENGTH_FIRST: {
          const stop = (this.#varint() >>> 0) + this.#at;
          if (stop > end) throw new FormatError("a field is longer than its message");
          if (field !== undefined) this.#field(field, stop, object);
          this.#at = stop;
          break;
        }
        case FIXED_64:
        case FIXED_32:
          if (field !== undefined) throw otherType(field.name);
          this.#at += (tag & 7) === FIXED_64 ? 8 : 4;
          break;
        default:
          throw new FormatError(`a field has the unknown wire type ${tag & 7}`);
      }
    }
    if (this.#at > end) throw new FormatError("a field is longer than its message");
    return object;
  }

  /** Reads a length-delimited field. @param end where its bytes end. */
  #field({ name, type, isList }: Field, end: number, object: Record<string, unknown>): void {
    if (type === "text") {
      const value = this.#bytes.toString("utf8", this.#at, end);
      if (isList) append(object, name, value);
      else if (value !== "") object[name] = value;
    } else if (type === "map") {
      const { key, value } = this.fields(MAP_ENTRY, end);
      const known = object[name];
      const entries: Record<string, unknown> = isJsonObject(known) ? known : {};
      entries[String(key ?? "")] = value ?? "";
      object[name] = entries;
    } else if (type === "bytes") object[name] = this.#bytes.subarray(this.#at, end);
    else if (typeof type === "string") throw otherType(name);
    else if (isList) append(object, name, this.fields(type, end));
    else object[name] = this.fields(type, end);
  }

  /** The low 32 bits: in the used fields, the higher bits only repeat the sign. */
  #varint(): number {
    let value = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.#bytes[this.#at++];
      if (byte === undefined) throw new FormatError("the message ends in the middle of a number");
      if (shift < 32) value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw new FormatError("a number has more than ten bytes");
  }
}

const MAP_ENTRY = message({ key: [1, "text"], value: [2, "text"] });

function append(object: Record<string, unknown>, name: string, value: unknown): void {
  const known = object[name];
  if (Array.isArray(known)) known.push(value);
  else object[name] = [value];
}

function otherType(name: string): FormatError {
  return new FormatError(`${name} has another type`);
}
