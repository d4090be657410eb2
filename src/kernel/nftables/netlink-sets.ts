/**
 * Sets and maps as netlink objects, made as `nft` 1.0.6 makes them: the types and user data decide how they are listed
 * (reference nfnetlink.md §4, §7, §8). Pure.
 */
import { mergedIntervals, nextAddress } from "../../net/intervals.ts";
import type { Cidr } from "../../net/ip.ts";
import { addressBytes, encodeKey, type FamilyLayout, keyBytes, keyTypeId, putAddress } from "./netlink-values.ts";
import type { NftElement, NftSet, NftTarget, NftValue, NftVerdict } from "./ruleset.ts";
import {
  concatType,
  NF_DROP,
  NFT_GOTO,
  NFT_JUMP,
  NFT_SET_ANONYMOUS,
  NFT_SET_CONSTANT,
  NFT_SET_ELEM_CATCHALL,
  NFT_SET_ELEM_INTERVAL_END,
  NFT_SET_EVAL,
  NFT_SET_INTERVAL,
  NFT_SET_MAP,
  NFT_SET_TIMEOUT,
  NFT_TYPES,
} from "./wire/constants.ts";
import { hostU32, type NftVerdictData } from "./wire/data.ts";
import type { NftElementObject, NftSetObject } from "./wire/objects.ts";
import { commentUserdata, NFT_PAYLOADS, openIntervalUserdata, type SetUserdata, setUserdata } from "./wire/userdata.ts";

/** A verdict in a register. */
export function verdictData(verdict: NftVerdict): NftVerdictData {
  switch (verdict.kind) {
    case "drop":
      return { code: NF_DROP };
    case "jump":
      return { code: NFT_JUMP, chain: verdict.chain };
    case "goto":
      return { code: NFT_GOTO, chain: verdict.chain };
  }
}

/** A named set, without table. */
export function setObject(set: NftSet, layout: FamilyLayout): NftSetObject {
  const isConcat = set.key.length > 1;
  const userdata: SetUserdata = {
    keyByteOrder: isConcat ? "none" : set.key[0] === "protocol" ? "none" : "big",
    ...(set.isMap ? ({ dataByteOrder: "none", isDataInterval: false } as const) : {}),
    ...(isConcat ? { keyTypeOf: { kind: "concat" } as const } : {}),
    comment: set.comment,
  };
  const isDynamic = set.timeoutSeconds !== undefined;
  return {
    name: set.name,
    // "Dynamic" from the start: a rule that fills the set would make it so, and adding it again would then be refused.
    flags: (set.isMap ? NFT_SET_MAP : 0) | (isDynamic ? NFT_SET_TIMEOUT | NFT_SET_EVAL : 0),
    keyType: keyTypeId(set.key, layout),
    keyLength: keyBytes(set.key, layout),
    ...(set.isMap ? { dataType: NFT_TYPES.verdict, dataLength: 0 } : {}),
    ...(set.timeoutSeconds === undefined ? {} : { timeout: set.timeoutSeconds * 1000 }),
    userdata: setUserdata(userdata),
  };
}

/** An element of a named set by its key. @throws RangeError when the key does not fit. */
export function keyObject(set: NftSet, key: readonly NftValue[], layout: FamilyLayout): NftElementObject {
  return key.length === 0 ? { flags: NFT_SET_ELEM_CATCHALL } : { key: { value: encodeKey(set.key, key, layout) } };
}

/** An element of a named set. @throws RangeError when the key does not fit. */
export function elementObject(set: NftSet, element: NftElement, layout: FamilyLayout): NftElementObject {
  return {
    ...keyObject(set, element.key, layout),
    data: element.verdict && { verdict: verdictData(element.verdict) },
    userdata: element.comment === undefined ? undefined : commentUserdata(element.comment),
  };
}

/** A set that belongs to the rule that looks into it, and that is shown there only. */
export interface AnonymousSet {
  /** Without table, name and id. */
  readonly object: NftSetObject;
  readonly elements: Iterable<NftElementObject>;
}

const CONSTANT = NFT_SET_ANONYMOUS | NFT_SET_CONSTANT;
const INDEX_MAP = { flags: CONSTANT | NFT_SET_MAP, keyType: NFT_TYPES.integer, keyLength: 4 };
const VERDICT_MAP_USERDATA = setUserdata({
  keyByteOrder: "host",
  dataByteOrder: "none",
  dataTypeOf: { kind: "verdict" },
  isDataInterval: false,
});
const TARGET_MAP_USERDATA = setUserdata({ keyByteOrder: "host", dataByteOrder: "none", isDataInterval: false });

/** `{ 0 : goto a, 1 : goto b }` */
export function verdictMap(verdicts: readonly NftVerdict[]): AnonymousSet {
  return {
    object: {
      ...INDEX_MAP,
      dataType: NFT_TYPES.verdict,
      dataLength: 0,
      description: { size: verdicts.length },
      userdata: VERDICT_MAP_USERDATA,
    },
    elements: indexed(verdicts, (verdict) => ({ verdict: verdictData(verdict) })),
  };
}

/** `{ 0 : 10.0.0.1 . 80, 1 : 10.0.0.2 . 80 }` */
export function targetMap(targets: readonly NftTarget[], layout: FamilyLayout): AnonymousSet {
  const length = layout.addressBytes + 4;
  return {
    object: {
      ...INDEX_MAP,
      dataType: concatType([layout.addressType, NFT_TYPES.inet_service]),
      dataLength: length,
      description: { size: targets.length },
      userdata: TARGET_MAP_USERDATA,
    },
    elements: indexed(targets, ({ ip, port }) => {
      const value = new Uint8Array(length);
      putAddress(value, 0, ip, layout);
      value[layout.addressBytes] = port >> 8;
      value[layout.addressBytes + 1] = port;
      return { value };
    }),
  };
}

function* indexed<T>(items: readonly T[], data: (item: T) => NftElementObject["data"]): Iterable<NftElementObject> {
  let index = 0;
  for (const item of items) yield { key: { value: hostU32(index++) }, data: data(item) };
}

/** `{ 10.0.0.0/8, 192.0.2.1 }`: what overlaps or touches is merged, since the kernel refuses overlaps. */
export function addressSet(cidrs: readonly Cidr[], side: "saddr" | "daddr", layout: FamilyLayout): AnonymousSet {
  const { protocol, [side]: field } = NFT_PAYLOADS[layout.family];
  const { elements, size } = intervalElements(cidrs, layout);
  return {
    object: {
      flags: CONSTANT | NFT_SET_INTERVAL,
      keyType: layout.addressType,
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

/** Each interval as the element that starts it and the one that is the first beyond it. `size` is as nft counts them. */
function intervalElements(cidrs: readonly Cidr[], layout: FamilyLayout) {
  const elements: NftElementObject[] = [];
  const end = (value: Uint8Array): NftElementObject => ({ key: { value }, flags: NFT_SET_ELEM_INTERVAL_END });
  let isLastOpen = false;
  for (const { first, last } of mergedIntervals(cidrs)) {
    const start = addressBytes(first, layout);
    // What lies before the first interval ends where that begins; nft says so, though the kernel does not need it.
    if (elements.length === 0 && start.some((byte) => byte !== 0)) elements.push(end(new Uint8Array(start.length)));
    const beyond = nextAddress(last);
    isLastOpen = beyond === undefined;
    if (beyond === undefined) elements.push({ key: { value: start }, userdata: openIntervalUserdata() });
    else elements.push({ key: { value: start } }, end(addressBytes(beyond, layout)));
  }
  return { elements, size: elements.length + (isLastOpen ? 1 : 0) };
}
