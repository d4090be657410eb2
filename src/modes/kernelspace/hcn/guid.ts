/** GUIDs as HCN uses them: 36 characters of text, or 16 bytes in Windows' mixed order. Reference windows-hcn.md §4.2. */

declare const brand: unique symbol;

/** Lower case, without braces. */
export type Guid = string & { readonly [brand]: "Guid" };

const TEXT = /^\{?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\}?$/;

/** The position in memory of each pair of digits: the first three groups are little-endian numbers. */
const BYTE_ORDER = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];

/** With this ID in a create call, HNS chooses the ID of the object. */
export const ZERO_GUID = "00000000-0000-0000-0000-000000000000" as Guid; // has the form

/** Reads a GUID in either case, with or without braces. @returns undefined if the text is not a GUID. */
export function parseGuid(text: string): Guid | undefined {
  return TEXT.exec(text.toLowerCase())?.[1] as Guid | undefined; // has the form
}

/** The bytes of a `GUID` in memory. */
export function guidBytes(guid: Guid): Uint8Array {
  const digits = Buffer.from(guid.replaceAll("-", ""), "hex");
  const bytes = new Uint8Array(digits.length);
  for (const [index, digit] of digits.entries()) bytes[BYTE_ORDER[index] ?? index] = digit;
  return bytes;
}
