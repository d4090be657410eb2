/** The API server's JSON → its protobuf, by the messages of kubernetes.proto. Shares no code with the decoder. */
import { readFileSync } from "node:fs";

type Json = Readonly<Record<string, unknown>>;

interface Field {
  readonly label: "required" | "optional" | "repeated" | "map";
  readonly type: string;
  readonly name: string;
  readonly number: number;
}

const MESSAGES = readMessages(readFileSync(new URL("kubernetes.proto", import.meta.url), "utf8"));
const MAP_ENTRY: readonly Field[] = [
  { label: "required", type: "string", name: "key", number: 1 },
  { label: "required", type: "string", name: "value", number: 2 },
];

interface Kind {
  readonly kind: string;
  readonly apiVersion: string;
}

/** A whole response: the magic number, and the object in its envelope. @param raw from {@link encodeMessage} */
export function encodeObject({ kind, apiVersion }: Kind, raw: Buffer): Buffer {
  const envelope = encodeMessage("Unknown", { typeMeta: { apiVersion, kind }, raw });
  return Buffer.concat([Buffer.from("k8s\0"), envelope]);
}

/** A list. @param kind of the items, which are from {@link encodeMessage} */
export function encodeList({ kind, apiVersion }: Kind, metadata: Json, items: readonly Buffer[]): Buffer {
  const list = [...delimited(1, encodeMessage("ListMeta", metadata)), ...items.flatMap((item) => delimited(2, item))];
  return encodeObject({ kind: `${kind}List`, apiVersion }, Buffer.concat(list));
}

/** One event of a watch, with a length prefix. @param object from {@link encodeObject} */
export function encodeEvent(type: string, object: Buffer): Buffer {
  const event = encodeMessage("WatchEvent", { type, object: { raw: object } });
  const length = Buffer.alloc(4);
  length.writeUInt32BE(event.length);
  return Buffer.concat([length, event]);
}

/** A bare message. */
export function encodeMessage(type: string, value: Json): Buffer {
  return Buffer.concat(encoded(fieldsOf(type), value));
}

function readMessages(text: string): ReadonlyMap<string, readonly Field[]> {
  const messages = new Map<string, readonly Field[]>();
  for (const [, name = "", body = ""] of text.matchAll(/^message (\w+) \{\n([^}]*)\}/gm)) {
    const fields = [
      ...body.matchAll(/^ {2}(required|optional|repeated|map)(?:<string, string>)? ?(\w+)? (\w+) = (\d+);$/gm),
    ];
    messages.set(
      name,
      fields.map(([, label, type = "", field = "", number]) => ({
        label: label as Field["label"], // one of the words that the expression has
        type,
        name: field,
        number: Number(number),
      })),
    );
  }
  return messages;
}

function fieldsOf(type: string): readonly Field[] {
  const fields = MESSAGES.get(type);
  if (fields === undefined) throw new Error(`kubernetes.proto has no message ${type}`);
  return fields;
}

function encoded(fields: readonly Field[], value: Json): Buffer[] {
  return fields.flatMap(({ label, type, name, number }) => {
    const given = value[name];
    if (label === "map") {
      const entries = Object.entries((given ?? {}) as Json).sort(([a], [b]) => (a < b ? -1 : 1));
      return entries.flatMap(([key, entry]) =>
        delimited(number, Buffer.concat(encoded(MAP_ENTRY, { key, value: entry }))),
      );
    }
    if (label === "repeated") return ((given ?? []) as unknown[]).flatMap((item) => encodedField(type, number, item));
    return given === undefined && label === "optional" ? [] : encodedField(type, number, given ?? undefined);
  });
}

function encodedField(type: string, number: number, value: unknown): Buffer[] {
  if (type === "string") return delimited(number, Buffer.from(String(value ?? "")));
  if (type === "bytes") return delimited(number, (value ?? Buffer.alloc(0)) as Buffer);
  if (type === "bool") return [varint(number * 8), varint(value === true ? 1 : 0)];
  if (type === "int32" || type === "int64") return [varint(number * 8), varint(Number(value ?? 0))];
  return delimited(number, encodeMessage(type, special(type, value)));
}

/** Converts values whose JSON form differs from the message. */
function special(type: string, value: unknown): Json {
  if (type === "Time") return typeof value === "string" ? { seconds: Date.parse(value) / 1000, nanos: 0 } : {};
  if (type === "IntOrString")
    return typeof value === "string" ? { type: 1, strVal: value } : { type: 0, intVal: value };
  if (type === "FieldsV1") return { Raw: Buffer.from(JSON.stringify(value)) };
  return (value ?? {}) as Json;
}

function delimited(number: number, content: Buffer): Buffer[] {
  return [varint(number * 8 + 2), varint(content.length), content];
}

/** A varint; negative numbers take ten bytes. */
function varint(value: number): Buffer {
  if (value >= 0 && value < 128) return Buffer.from([value]);
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  for (; rest >= 128n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  bytes.push(Number(rest));
  return Buffer.from(bytes);
}
