/** Register contents for tests. */
import { align4 } from "../../netlink/message-buffer.ts";

/** Joins fields in the register layout of a concatenation: each padded with zeros to a multiple of four bytes. */
export function concat(...fields: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(
    Buffer.concat(fields.flatMap((field) => [field, new Uint8Array(align4(field.length) - field.length)])),
  );
}
