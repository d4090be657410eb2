/** Prints the netlink messages of a transaction in readable form, attribute by attribute. */
import { byteReader } from "../netlink/attributes.ts";
import { HOST_IS_LITTLE_ENDIAN, NLMSG_HDRLEN } from "../netlink/constants.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";
import { NFNL_HEADERS_BYTES, NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END } from "../netlink/nfnetlink.ts";
import { KINDS, operationOfType } from "./wire/batch.ts";

const MARKERS: ReadonlyMap<number, string> = new Map([
  [NFNL_MSG_BATCH_BEGIN, "begin batch"],
  [NFNL_MSG_BATCH_END, "end batch"],
]);

/** Each message as a headline and its attributes as indented lines. */
export function* messageLines(messages: MessageBuffer): Iterable<string> {
  const input = byteReader(messages.bytes);
  for (let index = 0; index < messages.count; index++) {
    const start = messages.startOf(index);
    const length = input.view.getUint32(start, HOST_IS_LITTLE_ENDIAN);
    const type = messages.typeOf(index);
    const subject = operationOfType(type);
    const what = subject === undefined ? (MARKERS.get(type) ?? `type ${type}`) : `${subject.verb} ${subject.kind}`;
    yield `# ${index}: ${what}, type 0x${type.toString(16).padStart(4, "0")}, flags 0x${messages
      .flagsOf(index)
      .toString(16)}, family ${input.view.getUint8(start + NLMSG_HDRLEN)}, ${length} bytes`;
    if (subject === undefined) continue;
    const object: unknown = KINDS[subject.kind].codec.read(input, start + NFNL_HEADERS_BYTES, start + length);
    yield* valueLines(object, "  ");
  }
}

function* valueLines(value: unknown, indent: string): Iterable<string> {
  if (typeof value !== "object" || value === null) return;
  for (const [key, item] of Object.entries(value)) {
    if (Array.isArray(item)) {
      yield `${indent}${key}:`;
      for (const one of item) yield `${indent}  - ${inline(one)}`;
    } else yield `${indent}${key}: ${inline(item)}`;
  }
}

function inline(value: unknown): string {
  if (value instanceof Uint8Array) return Buffer.from(value).toString("hex");
  if (Array.isArray(value)) return `[${value.map(inline).join(", ")}]`;
  if (typeof value !== "object" || value === null) return String(value);
  const { kind, ...rest } = value as { readonly kind?: unknown }; // a decoded object: its fields are plain
  const fields = Object.entries(rest).map(([key, item]) => `${key} ${inlineField(item)}`);
  return [...(kind === undefined ? [] : [String(kind)]), fields.join(", ")].join(" ").trim();
}

function inlineField(value: unknown): string {
  const isNested =
    typeof value === "object" && value !== null && !(value instanceof Uint8Array) && !Array.isArray(value);
  return isNested ? `(${inline(value)})` : inline(value);
}
