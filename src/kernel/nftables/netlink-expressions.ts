/**
 * Compiles rules to kernel expressions in the same way as `nft` 1.0.6, so that nft lists them the same
 * (reference nfnetlink.md §5, §7). The kernel evaluates a rule's expressions in order, on registers: 16 words of four
 * bytes, addressed one by one or in groups of four.
 */

import { type Cidr, prefixMask, splitCidr } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../net/protocol.ts";
import { type AnonymousSet, addressSet, targetMap, verdictData, verdictMap } from "./netlink-sets.ts";
import { addressBytes, type FamilyLayout } from "./netlink-values.ts";
import { type NftField, type NftRule, type NftSlotKey, type NftStatement, sourceBits } from "./ruleset.ts";
import * as nft from "./wire/constants.ts";
import { hostU32, netU16 } from "./wire/data.ts";
import type { NftExpression } from "./wire/expressions.ts";

/** Adds an anonymous set of the rule, to be created before the rule. @returns its name, for lookups. */
type AddAnonymousSet = (set: AnonymousSet) => string;

const WORD = 4;
const REGISTER_WORDS = 16;
export const INTERFACE_NAME_BYTES = 16;
/** nft leaves this many words free between the key and the fields that it hashes. */
export const HASHED_BEHIND = 4;
export const CT_STATE_NEW = 8;
export const CT_STATUS_DNAT = 0x20;

/** The number of the register that starts at a word; groups of four words have their own numbers. */
export function register(word: number): number {
  return word % 4 === 0 ? nft.NFT_REG_1 + word / 4 : nft.NFT_REG32_00 + word;
}

/** The expressions of a rule. @throws RangeError for an IPv6 address in family ip. */
export function ruleExpressions(
  { statements }: NftRule,
  layout: FamilyLayout,
  addAnonymousSet: AddAnonymousSet,
): readonly NftExpression[] {
  return statements.flatMap((statement) => compile(statement, layout, addAnonymousSet));
}

function compile(
  statement: NftStatement,
  layout: FamilyLayout,
  addAnonymousSet: AddAnonymousSet,
): readonly NftExpression[] {
  switch (statement.kind) {
    case "ct-new":
      return ctHasAny(nft.NFT_CT_STATE, CT_STATE_NEW);
    case "ct-dnat":
      return ctHasAny(nft.NFT_CT_STATUS, CT_STATUS_DNAT);
    case "address":
      return matchAddresses(statement, layout, addAnonymousSet);
    case "fib-local": {
      const flags = statement.side === "saddr" ? nft.NFTA_FIB_F_SADDR : nft.NFTA_FIB_F_DADDR;
      return [
        { kind: "fib", dreg: nft.NFT_REG_1, result: nft.NFT_FIB_RESULT_ADDRTYPE, flags },
        compare(hostU32(nft.RTN_LOCAL)),
      ];
    }
    case "in-interface": {
      const name = Buffer.from(statement.name);
      // A full name is compared including its padding, a prefix without.
      const value = statement.isPrefix ? name : Buffer.concat([name], INTERFACE_NAME_BYTES);
      return metaIs(nft.NFT_META_IIFNAME, value, statement.negate);
    }
    case "mark-test":
      return [LOAD_MARK, ...anyBit(statement.mask)];
    case "l4proto":
      return metaIs(nft.NFT_META_L4PROTO, Uint8Array.of(PROTOCOL_NUMBERS[statement.protocol]));
    case "lookup":
      return [...loadFields(statement.fields, layout), lookupSet(statement.set, statement.negate)];
    case "mark-set": {
      const { operation, value } = statement;
      const mask = operation === "or" ? hostU32(~value) : hostU32(0xffff_ffff);
      const store: NftExpression = { kind: "meta", key: nft.NFT_META_MARK, sreg: nft.NFT_REG_1 };
      return [LOAD_MARK, bitwise(mask, hostU32(value)), store];
    }
    case "vmap":
      return [...loadKey(statement, layout), lookupMap(statement.map, nft.NFT_REG_VERDICT)];
    case "random-vmap": {
      const map = addAnonymousSet(verdictMap(statement.verdicts));
      return [random(statement.verdicts.length), lookupMap(map, nft.NFT_REG_VERDICT)];
    }
    case "update": {
      const update = { setName: statement.set, op: nft.NFT_DYNSET_OP_UPDATE, sregKey: nft.NFT_REG_1 };
      return [...loadFields([statement.field], layout), { kind: "dynset", ...update }];
    }
    case "update-map": {
      const words = wordsOf(statement.key, layout);
      // The data follows the key, starting at a whole register if there is room: nft lists this form and reads it back.
      const whole = Math.ceil(words / 4) * 4;
      const dataWord = whole + layout.addressBytes / WORD < REGISTER_WORDS ? whole : words;
      const update = { setName: statement.map, op: nft.NFT_DYNSET_OP_UPDATE, sregKey: nft.NFT_REG_1 };
      return [
        ...loadFields(statement.key, layout),
        ...loadFields(statement.target, layout, dataWord),
        { kind: "dynset", ...update, sregData: register(dataWord) },
      ];
    }
    case "map-dnat":
      return [...loadKey(statement, layout), lookupMap(statement.map, nft.NFT_REG_1), natToTarget(layout)];
    case "dnat":
      return [
        { kind: "immediate", dreg: nft.NFT_REG_1, data: { value: addressBytes(statement.to.ip, layout) } },
        { kind: "immediate", dreg: nft.NFT_REG_2, data: { value: netU16(statement.to.port) } },
        { ...destinationNat(layout.nfproto, nft.NFT_REG_2), flags: nft.NF_NAT_RANGE_PROTO_SPECIFIED },
      ];
    case "random-dnat": {
      const map = addAnonymousSet(targetMap(statement.targets, layout));
      return [random(statement.targets.length), lookupMap(map, nft.NFT_REG_1), natToTarget(layout)];
    }
    case "masquerade":
      return [{ kind: "masq", flags: nft.NF_NAT_RANGE_PROTO_RANDOM_FULLY }];
    case "counter":
      return [{ kind: "objref", immName: statement.name, immType: nft.NFT_OBJECT_COUNTER }];
    case "reject":
      return statement.withReset === true
        ? [{ kind: "reject", type: nft.NFT_REJECT_TCP_RST, icmpCode: 0 }]
        : [{ kind: "reject", type: nft.NFT_REJECT_ICMP_UNREACH, icmpCode: layout.portUnreachable }];
    case "verdict":
      return [{ kind: "immediate", dreg: nft.NFT_REG_VERDICT, data: { verdict: verdictData(statement.verdict) } }];
  }
}

const LOAD_MARK: NftExpression = { kind: "meta", key: nft.NFT_META_MARK, dreg: nft.NFT_REG_1 };

/** Expects the address in the first register. */
function destinationNat(family: number, regProtoMin: number): NftExpression & { readonly kind: "nat" } {
  return { kind: "nat", type: nft.NFT_NAT_DNAT, family, regAddrMin: nft.NFT_REG_1, regProtoMin };
}

/** Expects a map's result: the address in the first register, and the port in the word after it. */
function natToTarget({ nfproto, addressBytes: bytes }: FamilyLayout): NftExpression {
  return destinationNat(nfproto, register(bytes / WORD));
}

/** Matches if the first register has this value, or with `negate` if it has another. */
export function compare(value: Uint8Array, negate = false): NftExpression {
  return { kind: "cmp", sreg: nft.NFT_REG_1, op: negate ? nft.NFT_CMP_NEQ : nft.NFT_CMP_EQ, data: { value } };
}

/** ANDs a register with `mask` and XORs it with `xor`. */
export function bitwise(
  mask: Uint8Array,
  xor: Uint8Array = new Uint8Array(mask.length),
  register = nft.NFT_REG_1,
): NftExpression {
  return {
    kind: "bitwise",
    sreg: register,
    dreg: register,
    len: mask.length,
    op: 0,
    mask: { value: mask },
    xor: { value: xor },
  };
}

/** Matches if the first register has any of these bits. */
function anyBit(bits: number): NftExpression[] {
  return [bitwise(hostU32(bits)), compare(hostU32(0), true)];
}

/** Matches if the connection's state or status has any of these bits. */
export function ctHasAny(key: number, bits: number): readonly NftExpression[] {
  return [{ kind: "ct", key, dreg: nft.NFT_REG_1 }, ...anyBit(bits)];
}

/** Matches if a key of the packet has this value, or with `negate` if it has another. */
export function metaIs(key: number, value: Uint8Array, negate?: boolean): readonly NftExpression[] {
  return [{ kind: "meta", key, dreg: nft.NFT_REG_1 }, compare(value, negate)];
}

/** Loads bytes of the transport header. */
export function transport(offset: number, len: number, dreg = nft.NFT_REG_1): NftExpression {
  return { kind: "payload", dreg, base: nft.NFT_PAYLOAD_TRANSPORT_HEADER, offset, len };
}

function random(modulus: number, dreg = nft.NFT_REG_1): NftExpression {
  return { kind: "numgen", dreg, modulus, type: nft.NFT_NG_RANDOM, offset: 0 };
}

/** Loads fields and the slot behind them: a random one, or a hash of other fields, which are loaded where nft loads them. */
function loadKey({ fields, slots, hash }: NftSlotKey, layout: FamilyLayout): readonly NftExpression[] {
  const key = loadFields(fields, layout);
  if (slots === undefined) return key;
  const word = wordsOf(fields, layout);
  if (hash === undefined) return [...key, random(slots, register(word))];
  const from = word + 1 + HASHED_BEHIND;
  const len = wordsOf(hash.fields, layout) * WORD;
  const [sreg, dreg] = [register(from), register(word)];
  const slot = { sreg, dreg, len, modulus: slots, seed: hash.seed, type: nft.NFT_HASH_JENKINS };
  return [...key, ...loadFields(hash.fields, layout, from), { kind: "hash", ...slot }];
}

function lookupMap(set: string, dreg: number): NftExpression {
  return { kind: "lookup", set, sreg: nft.NFT_REG_1, dreg };
}

/** Matches if the set has the key, or with `negate` if it has not. */
function lookupSet(set: string, negate = false): NftExpression {
  return { kind: "lookup", set, sreg: nft.NFT_REG_1, ...(negate && { flags: nft.NFT_LOOKUP_F_INV }) };
}

/** Fields of the connection: the direction, and the kernel's key by family. */
const CONNECTION_FIELDS = {
  "original-daddr": { direction: nft.IP_CT_DIR_ORIGINAL, ip: nft.NFT_CT_DST_IP, ip6: nft.NFT_CT_DST_IP6 },
  "original-dport": { direction: nft.IP_CT_DIR_ORIGINAL, ip: nft.NFT_CT_PROTO_DST, ip6: nft.NFT_CT_PROTO_DST },
  "reply-saddr": { direction: nft.IP_CT_DIR_REPLY, ip: nft.NFT_CT_SRC_IP, ip6: nft.NFT_CT_SRC_IP6 },
  "reply-sport": { direction: nft.IP_CT_DIR_REPLY, ip: nft.NFT_CT_PROTO_SRC, ip6: nft.NFT_CT_PROTO_SRC },
} as const;
/** All other fields are addresses. */
const OF_ONE_WORD: ReadonlySet<NftField> = new Set(["l4proto", "sport", "dport", "original-dport", "reply-sport"]);

/** How many words a key of these fields has. */
function wordsOf(fields: readonly NftField[], { addressBytes: bytes }: FamilyLayout): number {
  return fields.reduce((words, field) => words + (OF_ONE_WORD.has(field) ? 1 : bytes / WORD), 0);
}

/** Loads fields one after the other, in the layout of set keys. @param from the word of the first. */
function loadFields(fields: readonly NftField[], layout: FamilyLayout, from = 0): readonly NftExpression[] {
  return fields.flatMap((field, index) =>
    loadField(field, register(from + wordsOf(fields.slice(0, index), layout)), layout),
  );
}

function loadField(field: NftField, dreg: number, layout: FamilyLayout): NftExpression | readonly NftExpression[] {
  switch (field) {
    case "saddr":
    case "daddr":
      return loadAddress(field, layout.addressBytes, layout, dreg);
    case "l4proto":
      return { kind: "meta", key: nft.NFT_META_L4PROTO, dreg };
    case "sport":
    case "dport":
      return transport(field === "sport" ? 0 : 2, 2, dreg);
    case "original-daddr":
    case "original-dport":
    case "reply-saddr":
    case "reply-sport": {
      const { direction, [layout.family]: key } = CONNECTION_FIELDS[field];
      return { kind: "ct", dreg, key, direction };
    }
    default: {
      const mask = prefixMask(sourceBits(field) ?? 0, layout.addressBytes);
      return [loadAddress("saddr", layout.addressBytes, layout, dreg), bitwise(mask, undefined, dreg)];
    }
  }
}

function loadAddress(side: "saddr" | "daddr", len: number, layout: FamilyLayout, dreg = nft.NFT_REG_1): NftExpression {
  return { kind: "payload", dreg, base: nft.NFT_PAYLOAD_NETWORK_HEADER, offset: layout.addressAt[side], len };
}

function matchAddresses(
  { side, cidrs, negate }: Extract<NftStatement, { kind: "address" }>,
  layout: FamilyLayout,
  addAnonymousSet: AddAnonymousSet,
): readonly NftExpression[] {
  const [only] = cidrs;
  if (only !== undefined && cidrs.length === 1) return matchPrefix(only, side, negate, layout);
  const set = addAnonymousSet(addressSet(cidrs, side, layout));
  return [loadAddress(side, layout.addressBytes, layout), lookupSet(set, negate)];
}

/** Compares a prefix of whole bytes with the address's first bytes; for other lengths, masks the whole address. */
function matchPrefix(
  cidr: Cidr,
  side: "saddr" | "daddr",
  negate: boolean | undefined,
  layout: FamilyLayout,
): readonly NftExpression[] {
  const { address, length } = splitCidr(cidr);
  const bytes = addressBytes(address, layout);
  if (length > 0 && length % 8 === 0) {
    return [loadAddress(side, length / 8, layout), compare(bytes.subarray(0, length / 8), negate)];
  }
  const mask = prefixMask(length, bytes.length);
  return [loadAddress(side, bytes.length, layout), bitwise(mask), compare(bytes, negate)];
}
