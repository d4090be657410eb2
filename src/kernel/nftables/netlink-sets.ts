/**
 * Sets and maps as netlink objects, built as by `nft` 1.0.6: types and user data decide how nft lists them
 * (reference nfnetlink.md §4, §7, §8).
 */
import { mergedIntervals, nextAddress } from "../../net/intervals.ts";
import type { Cidr } from "../../net/ip.ts";
import { binary, u32be, writeAttribute } from "../netlink/attributes.ts";
import { NLA_F_NESTED, NLA_HDRLEN } from "../netlink/constants.ts";
import { align4, type MessageBuffer } from "../netlink/message-buffer.ts";
import { addressBytes, type FamilyLayout, keyBytes, keyTypeId, putKey, TARGET } from "./netlink-values.ts";
import type { NftElement, NftKeyType, NftSet, NftTarget, NftValue, NftVerdict } from "./ruleset.ts";
import * as nft from "./wire/constants.ts";
import { data, hostU32, type NftVerdictData } from "./wire/data.ts";
import type { NftElementObject, NftSetObject } from "./wire/objects.ts";
import {
  commentUserdata,
  NFT_PAYLOADS,
  openIntervalUserdata,
  type SetUserdata,
  setUserdata,
  type TypeOf,
} from "./wire/userdata.ts";

/** A verdict in a register. */
export function verdictData(verdict: NftVerdict): NftVerdictData {
  return { code: nft.VERDICT_CODES[verdict.kind], ...("chain" in verdict && { chain: verdict.chain }) };
}

/** A named set or map, without its table. */
export function setObject(set: NftSet, layout: FamilyLayout): NftSetObject {
  const isConcat = set.key.length > 1;
  const isMap = set.isMap || set.hasTargets === true;
  const userdata: SetUserdata = {
    keyByteOrder: isConcat ? "none" : set.key[0] === "protocol" ? "none" : "big",
    ...(isMap ? ({ dataByteOrder: "none", isDataInterval: false } as const) : {}),
    ...(isConcat ? { keyTypeOf: keyTypeOf(set, layout) } : {}),
    ...(set.hasTargets === true ? { dataTypeOf: targetTypeOf(set, layout) } : {}),
    // nft aborts at a listing if only one of the two is declared by an expression.
    ...(set.isMap && set.slots !== undefined ? { dataTypeOf: { kind: "verdict" } as const } : {}),
    comment: set.comment,
  };
  const isDynamic = set.timeoutSeconds !== undefined;
  return {
    name: set.name,
    // Dynamic from the start: otherwise the first rule that fills the set makes it so, and adding the set again fails.
    flags: (isMap ? nft.NFT_SET_MAP : 0) | (isDynamic ? nft.NFT_SET_TIMEOUT | nft.NFT_SET_EVAL : 0),
    keyType: keyTypeId(set.key, layout),
    keyLength: keyBytes(set.key, layout),
    ...(set.isMap ? { dataType: nft.NFT_TYPES.verdict, dataLength: 0 } : {}),
    ...(set.hasTargets === true ? { dataType: targetTypeId(layout), dataLength: keyBytes(TARGET, layout) } : {}),
    ...(set.size === undefined ? {} : { description: { size: set.size } }),
    ...(set.timeoutSeconds === undefined ? {} : { timeout: set.timeoutSeconds * 1000 }),
    userdata: setUserdata(userdata),
    // The kernel gives each element its own counter.
    ...(set.hasCounters === true ? { expression: { kind: "counter" } as const } : {}),
  };
}

/** nft's type number for the values of a map with targets. */
export function targetTypeId(layout: FamilyLayout): number {
  return keyTypeId(TARGET, layout);
}

/** nft has no named type for a slot: sets with slots are declared by the expressions that look them up. */
function keyTypeOf({ key, slots }: NftSet, layout: FamilyLayout): TypeOf {
  if (slots === undefined) return { kind: "concat" };
  const partOf = (type: NftKeyType): TypeOf => {
    switch (type) {
      case "address":
        return destination(layout);
      case "protocol":
        return { kind: "meta", key: nft.NFT_META_L4PROTO };
      case "port":
        return DESTINATION_PORT;
      case "slot":
        return { kind: "random", modulus: slots };
    }
  };
  return { kind: "concat", parts: key.map(partOf) };
}

function targetTypeOf({ slots }: NftSet, layout: FamilyLayout): TypeOf {
  return slots === undefined ? { kind: "concat" } : { kind: "concat", parts: [destination(layout), DESTINATION_PORT] };
}

const DESTINATION_PORT: TypeOf = {
  kind: "payload",
  protocol: NFT_PAYLOADS.th.protocol,
  field: NFT_PAYLOADS.th.dport,
};

function destination({ family }: FamilyLayout): TypeOf {
  const { protocol, daddr: field } = NFT_PAYLOADS[family];
  return { kind: "payload", protocol, field };
}

const KEY = 1;
const DATA = 2;
const FLAGS = 3;
const USERDATA = 6;
const VALUE = 1;

/** Writes the attributes of an element of a named set, in the kernel's order. @throws RangeError when the key does not fit. */
export function writeElement(out: MessageBuffer, set: NftSet, one: NftElement, layout: FamilyLayout): void {
  const { key, target, verdict, comment } = one;
  writeKey(out, set, key, layout);
  if (verdict !== undefined) writeAttribute(out, DATA, data, { verdict: verdictData(verdict) });
  else if (target !== undefined) {
    const at = placeValue(out, DATA, keyBytes(TARGET, layout));
    putTarget(out.memory, at, target, layout);
  }
  if (comment !== undefined) writeAttribute(out, USERDATA, binary, commentUserdata(comment));
}

/** Writes the key of an element. @throws RangeError when the key does not fit. */
export function writeKey(out: MessageBuffer, set: NftSet, key: readonly NftValue[], layout: FamilyLayout): void {
  if (key.length === 0) {
    writeAttribute(out, FLAGS, u32be, nft.NFT_SET_ELEM_CATCHALL);
    return;
  }
  const at = placeValue(out, KEY, keyBytes(set.key, layout));
  putKey(out.memory, at, set.key, key, layout);
}

/** Writes an attribute with a value of zeros. @returns the offset of the value. */
function placeValue(out: MessageBuffer, type: number, length: number): number {
  const padded = align4(length);
  const at = out.zeros(2 * NLA_HDRLEN + padded);
  out.patchHostU16(at, 2 * NLA_HDRLEN + padded);
  out.patchHostU16(at + 2, type | NLA_F_NESTED);
  out.patchHostU16(at + 4, NLA_HDRLEN + length);
  out.patchHostU16(at + 6, VALUE);
  return at + 2 * NLA_HDRLEN;
}

function putTarget(bytes: Uint8Array, at: number, { ip, port }: NftTarget, layout: FamilyLayout): Uint8Array {
  putKey(bytes, at, TARGET, [ip, port], layout);
  return bytes;
}

/** A set that belongs to the rule that uses it; nft prints it inside that rule. */
export interface AnonymousSet {
  /** Without table, name and id. */
  readonly object: NftSetObject;
  readonly elements: Iterable<NftElementObject>;
}

const CONSTANT = nft.NFT_SET_ANONYMOUS | nft.NFT_SET_CONSTANT;
const INDEX_MAP = { flags: CONSTANT | nft.NFT_SET_MAP, keyType: nft.NFT_TYPES.integer, keyLength: 4 };
const VERDICT_MAP_USERDATA = setUserdata({
  keyByteOrder: "host",
  dataByteOrder: "none",
  dataTypeOf: { kind: "verdict" },
  isDataInterval: false,
});
const TARGET_MAP_USERDATA = setUserdata({ keyByteOrder: "host", dataByteOrder: "none", isDataInterval: false });

/** `{ 0 : goto a, 1 : goto b }` */
export function verdictMap(verdicts: readonly NftVerdict[]): AnonymousSet {
  const values = { dataType: nft.NFT_TYPES.verdict, dataLength: 0, userdata: VERDICT_MAP_USERDATA };
  return indexMap(values, verdicts, (verdict) => ({ verdict: verdictData(verdict) }));
}

/** `{ 0 : 10.0.0.1 . 80, 1 : 10.0.0.2 . 80 }` */
export function targetMap(targets: readonly NftTarget[], layout: FamilyLayout): AnonymousSet {
  const dataLength = keyBytes(TARGET, layout);
  const values = { dataType: targetTypeId(layout), dataLength, userdata: TARGET_MAP_USERDATA };
  return indexMap(values, targets, (target) => ({ value: putTarget(new Uint8Array(dataLength), 0, target, layout) }));
}

function indexMap<T>(
  values: Pick<NftSetObject, "dataType" | "dataLength" | "userdata">,
  items: readonly T[],
  data: (item: T) => NftElementObject["data"],
): AnonymousSet {
  const object = { ...INDEX_MAP, ...values, description: { size: items.length } };
  return { object, elements: items.map((item, index) => ({ key: { value: hostU32(index) }, data: data(item) })) };
}

/** `{ 10.0.0.0/8, 192.0.2.1 }`. Overlapping and adjacent prefixes are merged, since the kernel rejects overlaps. */
export function addressSet(cidrs: readonly Cidr[], side: "saddr" | "daddr", layout: FamilyLayout): AnonymousSet {
  const { protocol, [side]: field } = NFT_PAYLOADS[layout.family];
  const { elements, size } = intervalElements(cidrs, layout);
  return {
    object: {
      flags: CONSTANT | nft.NFT_SET_INTERVAL,
      keyType: layout.types.address.id,
      keyLength: layout.addressBytes,
      description: { size },
      userdata: setUserdata({
        keyByteOrder: "big",
        mergeElements: true,
        keyTypeOf: { kind: "payload", protocol, field },
      }),
    },
    elements,
  };
}

/** Each interval as two elements: its start, and the first address after its end. `size` is counted as in nft. */
function intervalElements(cidrs: readonly Cidr[], layout: FamilyLayout) {
  const elements: NftElementObject[] = [];
  const end = (value: Uint8Array): NftElementObject => ({ key: { value }, flags: nft.NFT_SET_ELEM_INTERVAL_END });
  let isLastOpen = false;
  for (const { first, last } of mergedIntervals(cidrs)) {
    const start = addressBytes(first, layout);
    // nft also writes an end element at address 0, before the first interval; the kernel does not need it.
    if (elements.length === 0 && start.some((byte) => byte !== 0)) elements.push(end(new Uint8Array(start.length)));
    const beyond = nextAddress(last);
    isLastOpen = beyond === undefined;
    if (beyond === undefined) elements.push({ key: { value: start }, userdata: openIntervalUserdata() });
    else elements.push({ key: { value: start } }, end(addressBytes(beyond, layout)));
  }
  return { elements, size: elements.length + (isLastOpen ? 1 : 0) };
}
