/**
 * The data that `nft` stores with objects to print them: comments, and how to interpret keys. Type, length, value; no padding
 * (reference nfnetlink.md §8). Unknown entries are kept as bytes.
 */
import { hostU32 } from "./data.ts";

/** The kernel's limit for the user data of one object. */
const USERDATA_LIMIT = 256;
const COMMENT = 0;
const SET_KEY_BYTE_ORDER = 0;
const SET_DATA_BYTE_ORDER = 1;
const SET_MERGE_ELEMENTS = 2;
const SET_KEY_TYPEOF = 3;
const SET_DATA_TYPEOF = 4;
const SET_DATA_INTERVAL = 6;
const SET_COMMENT = 7;
const NUMGEN_RANDOM = 1;
/** For elements: the interval that the element starts has no end. */
const ELEMENT_FLAGS = 1;
const ELEMENT_OPEN_INTERVAL = 1;
/** Our own type, far from those that nft uses; programs skip unknown types. */
const ORIGIN = 0xb7;

/** The byte order in which `nft` reads a key or value. Concatenations and single bytes have none. */
type ByteOrder = "none" | "host" | "big";
const BYTE_ORDERS: Readonly<Record<ByteOrder, number>> = { none: 0, host: 1, big: 2 };

/** The expression that declares the type of a key or value: nft's `typeof`. */
export type TypeOf =
  /** Without parts, the set's type number tells them. */
  | { readonly kind: "concat"; readonly parts?: readonly TypeOf[] }
  | { readonly kind: "verdict" }
  /** `protocol` and `field` are nft's numbers. */
  | { readonly kind: "payload"; readonly protocol: number; readonly field: number }
  /** `meta l4proto`; `key` is the kernel's number. */
  | { readonly kind: "meta"; readonly key: number }
  /** `numgen random mod` */
  | { readonly kind: "random"; readonly modulus: number };

/** nft's numbers of protocols and their fields, for {@link TypeOf} (nft 1.0.6). */
export const NFT_PAYLOADS = {
  ip: { protocol: 12, saddr: 11, daddr: 12 },
  ip6: { protocol: 13, saddr: 8, daddr: 9 },
  th: { protocol: 11, dport: 2 },
} as const;

export interface SetUserdata {
  readonly keyByteOrder?: ByteOrder;
  readonly dataByteOrder?: ByteOrder;
  /** Makes nft merge adjacent intervals when listing. */
  readonly mergeElements?: boolean;
  readonly keyTypeOf?: TypeOf;
  readonly dataTypeOf?: TypeOf;
  readonly isDataInterval?: boolean;
  readonly comment?: string | undefined;
}

/** User data of a table, chain, rule or element with this comment, which is cut at the limit. */
export function commentUserdata(comment: string): Uint8Array {
  if (comment !== last.comment) last = { comment, userdata: entry(COMMENT, text(comment, USERDATA_LIMIT - 2)) };
  return last.userdata;
}

/** Caches the last comment: consecutive elements of a service share one. */
let last = { comment: "", userdata: entry(COMMENT, text("", USERDATA_LIMIT - 2)) };

/**
 * User data of a rule: its comment, if any, which is cut at the limit, and a mark of its origin, which other programs
 * ignore.
 */
export function ruleUserdata(comment: string | undefined, origin: Uint8Array): Uint8Array {
  const mark = entry(ORIGIN, origin);
  if (comment === undefined) return mark;
  return Buffer.concat([entry(COMMENT, text(comment, USERDATA_LIMIT - mark.length - 2)), mark]);
}

/** The origin mark of a rule; undefined if it has none. */
export function originOf(userdata: Uint8Array | undefined): Uint8Array | undefined {
  return userdata && parseUserdata(userdata).get(ORIGIN);
}

/** User data of an element that starts an interval up to the last possible value. */
export function openIntervalUserdata(): Uint8Array {
  return entry(ELEMENT_FLAGS, hostU32(ELEMENT_OPEN_INTERVAL));
}

function typeOf(expression: TypeOf): Uint8Array {
  const number = (id: number): Uint8Array => entry(0, hostU32(id));
  switch (expression.kind) {
    case "verdict":
      return Buffer.concat([number(1), entry(1, new Uint8Array())]);
    case "concat": {
      const parts = (expression.parts ?? []).map((part, index) => entry(index, typeOf(part)));
      return Buffer.concat([number(13), entry(1, Buffer.concat(parts))]);
    }
    case "meta":
      return Buffer.concat([number(9), entry(1, number(expression.key))]);
    case "random": {
      const { modulus } = expression;
      const terms = [entry(0, hostU32(NUMGEN_RANDOM)), entry(1, hostU32(modulus)), entry(2, hostU32(0))];
      return Buffer.concat([number(23), entry(1, Buffer.concat(terms))]);
    }
    case "payload": {
      const field = Buffer.concat([number(expression.protocol), entry(1, hostU32(expression.field))]);
      return Buffer.concat([number(7), entry(1, field)]);
    }
  }
}

/** User data of a set or map. */
export function setUserdata(options: SetUserdata): Uint8Array {
  const { keyByteOrder, dataByteOrder, mergeElements, keyTypeOf, dataTypeOf, isDataInterval, comment } = options;
  const parts = [
    keyByteOrder && entry(SET_KEY_BYTE_ORDER, hostU32(BYTE_ORDERS[keyByteOrder])),
    dataByteOrder && entry(SET_DATA_BYTE_ORDER, hostU32(BYTE_ORDERS[dataByteOrder])),
    mergeElements === undefined ? undefined : entry(SET_MERGE_ELEMENTS, flag(mergeElements)),
    keyTypeOf && entry(SET_KEY_TYPEOF, typeOf(keyTypeOf)),
    dataTypeOf && entry(SET_DATA_TYPEOF, typeOf(dataTypeOf)),
    isDataInterval === undefined ? undefined : entry(SET_DATA_INTERVAL, flag(isDataInterval)),
  ].filter((part) => part !== undefined);
  if (comment !== undefined) {
    const room = parts.reduce((left, part) => left - part.length, USERDATA_LIMIT) - 2;
    parts.push(entry(SET_COMMENT, text(comment, room)));
  }
  return Buffer.concat(parts);
}

/** The entries by type, without a truncated one at the end. */
export function parseUserdata(bytes: Uint8Array): ReadonlyMap<number, Uint8Array> {
  const entries = new Map<number, Uint8Array>();
  let at = 0;
  while (at + 2 <= bytes.length) {
    const [type = 0, length = 0] = bytes.subarray(at, at + 2);
    if (at + 2 + length > bytes.length) break;
    entries.set(type, bytes.subarray(at + 2, at + 2 + length));
    at += 2 + length;
  }
  return entries;
}

/** The comment of a table, chain, rule or element. */
export function commentOf(userdata: Uint8Array | undefined): string | undefined {
  const value = userdata && parseUserdata(userdata).get(COMMENT);
  // nft ignores a comment without its terminator.
  if (value === undefined || value.at(-1) !== 0) return undefined;
  return Buffer.from(value.subarray(0, -1)).toString("utf8");
}

/** Text with its terminator in at most `room` bytes (or the 255 that a length byte allows), cut between characters. */
function text(value: string, room: number): Uint8Array {
  const limit = Math.min(room, 255) - 1;
  let bytes: Buffer = Buffer.from(value, "utf8");
  if (bytes.length > limit) {
    let end = limit;
    while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
    bytes = bytes.subarray(0, end);
  }
  return Buffer.concat([bytes, Uint8Array.of(0)]);
}

function flag(isSet: boolean): Uint8Array {
  return hostU32(isSet ? 1 : 0);
}

function entry(type: number, value: Uint8Array): Uint8Array {
  return Buffer.concat([Uint8Array.of(type, value.length), value]);
}
