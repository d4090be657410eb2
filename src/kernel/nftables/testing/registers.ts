/** Register contents for tests. */
import { align4 } from "../../netlink/constants.ts";

/** Joins fields as registers hold a concatenation: each padded with zeroes to four bytes. Pure. */
export function concat(...fields: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(
    Buffer.concat(fields.flatMap((field) => [field, new Uint8Array(align4(field.length) - field.length)])),
  );
}
