/**
 * Compiles rules to kernel expressions in the same way as `nft` 1.0.6, so that nft lists them the same
 * (reference nfnetlink.md §5, §7). The kernel evaluates a rule's expressions in order, on registers: 16 words of four
 * bytes, addressed one by one or in groups of four.
 */

import { type Cidr, prefixMask, splitCidr } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../net/protocol.ts";
import { type AnonymousSet, addressSet, targetMap, verdictData, verdictMap } from "./netlink-sets.ts";
import { addressBytes, type FamilyLayout } from "./netlink-values.ts";
import { type NftField, type NftRule, type NftStatement, sourceBits } from "./ruleset.ts";
import * as nft from "./wire/constants.ts";
import { hostU32, netU16 } from "./wire/data.ts";
import type { NftExpression } from "./wire/expressions.ts";

/** Adds an anonymous set of the rule, to be created before the rule. @returns its name, for lookups. */
type AddAnonymousSet = (set: AnonymousSet) => string;

const WORD = 4;
const REGISTER_WORDS = 16;
const INTERFACE_NAME_BYTES = 16;
const CT_STATE_NEW = 8;
const CT_STATUS_DNAT = 0x20;

/** The number of the register that starts at a word; groups of four words have their own numbers. */
function register(word: number): number {
  return word % 4 === 0 ? nft.NFT_REG_1 + word / 4 : nft.NFT_REG32_00 + word;
}

/** The expressions of a rule. @throws RangeError for an IPv6 address in family ip. */
export function ruleExpressions(
  rule: NftRule,
  layout: FamilyLayout,
  addAnonymousSet: AddAnonymousSet,
): readonly NftExpression[] {
  const expressions: NftExpression[] = [];
  for (const statement of rule.statements) compile(expressions, statement, layout, addAnonymousSet);
  return expressions;
}

function compile(
  out: NftExpression[],
  statement: NftStatement,
  layout: FamilyLayout,
  addAnonymousSet: AddAnonymousSet,
): void {
  switch (statement.kind) {
    case "ct-new":
      out.push({ kind: "ct", key: nft.NFT_CT_STATE, dreg: nft.NFT_REG_1 }, ...anyBit(CT_STATE_NEW));
      return;
    case "ct-dnat":
      out.push({ kind: "ct", key: nft.NFT_CT_STATUS, dreg: nft.NFT_REG_1 }, ...anyBit(CT_STATUS_DNAT));
      return;
    case "address":
      matchAddresses(out, statement, layout, addAnonymousSet);
      return;
    case "fib-local":
      out.push(
        {
          kind: "fib",
          dreg: nft.NFT_REG_1,
          result: nft.NFT_FIB_RESULT_ADDRTYPE,
          flags: statement.side === "saddr" ? nft.NFTA_FIB_F_SADDR : nft.NFTA_FIB_F_DADDR,
        },
        compare(hostU32(nft.RTN_LOCAL)),
      );
      return;
    case "in-interface": {
      const name = Buffer.from(statement.name);
      // A full name is compared including its padding, a prefix without.
      const value = statement.isPrefix ? name : Buffer.concat([name], INTERFACE_NAME_BYTES);
      out.push({ kind: "meta", key: nft.NFT_META_IIFNAME, dreg: nft.NFT_REG_1 }, compare(value, statement.negate));
      return;
    }
    case "mark-test":
      out.push(LOAD_MARK, ...anyBit(statement.mask));
      return;
    case "l4proto":
      loadFields(out, ["l4proto"], layout);
      out.push(compare(Uint8Array.of(PROTOCOL_NUMBERS[statement.protocol])));
      return;
    case "lookup":
      loadFields(out, statement.fields, layout);
      out.push({
        kind: "lookup",
        set: statement.set,
        sreg: nft.NFT_REG_1,
        ...(statement.negate === true ? { flags: nft.NFT_LOOKUP_F_INV } : {}),
      });
      return;
    case "mark-set": {
      const { operation, value } = statement;
      const mask = operation === "or" ? hostU32(~value) : hostU32(0xffff_ffff);
      out.push(LOAD_MARK, bitwise(mask, hostU32(value)), {
        kind: "meta",
        key: nft.NFT_META_MARK,
        sreg: nft.NFT_REG_1,
      });
      return;
    }
    case "vmap":
      loadFields(out, statement.fields, layout);
      out.push({ kind: "lookup", set: statement.map, sreg: nft.NFT_REG_1, dreg: nft.NFT_REG_VERDICT });
      return;
    case "random-vmap": {
      const map = addAnonymousSet(verdictMap(statement.verdicts));
      out.push(random(statement.verdicts.length), lookupMap(map, nft.NFT_REG_VERDICT));
      return;
    }
    case "update":
      loadFields(out, [statement.field], layout);
      out.push({
        kind: "dynset",
        setName: statement.set,
        op: nft.NFT_DYNSET_OP_UPDATE,
        sregKey: nft.NFT_REG_1,
      });
      return;
    case "update-map": {
      const words = loadFields(out, statement.key, layout);
      // The data follows the key, starting at a whole register if there is room: nft lists this form and reads it back.
      const whole = Math.ceil(words / 4) * 4;
      const dataWord = whole + layout.addressBytes / WORD < REGISTER_WORDS ? whole : words;
      loadFields(out, statement.target, layout, dataWord);
      out.push({
        kind: "dynset",
        setName: statement.map,
        op: nft.NFT_DYNSET_OP_UPDATE,
        sregKey: nft.NFT_REG_1,
        sregData: register(dataWord),
      });
      return;
    }
    case "map-dnat": {
      const words = loadFields(out, statement.fields, layout);
      if (statement.slots !== undefined) out.push(random(statement.slots, register(words)));
      out.push(lookupMap(statement.map, nft.NFT_REG_1), natToTarget(layout));
      return;
    }
    case "dnat":
      out.push(
        { kind: "immediate", dreg: nft.NFT_REG_1, data: { value: addressBytes(statement.to.ip, layout) } },
        { kind: "immediate", dreg: nft.NFT_REG_2, data: { value: netU16(statement.to.port) } },
        { ...destinationNat(layout.nfproto, nft.NFT_REG_2), flags: nft.NF_NAT_RANGE_PROTO_SPECIFIED },
      );
      return;
    case "random-dnat": {
      const map = addAnonymousSet(targetMap(statement.targets, layout));
      out.push(random(statement.targets.length), lookupMap(map, nft.NFT_REG_1), natToTarget(layout));
      return;
    }
    case "masquerade":
      out.push({ kind: "masq", flags: nft.NF_NAT_RANGE_PROTO_RANDOM_FULLY });
      return;
    case "counter":
      out.push({ kind: "objref", immName: statement.name, immType: nft.NFT_OBJECT_COUNTER });
      return;
    case "reject":
      if (statement.withReset === true) out.push({ kind: "reject", type: nft.NFT_REJECT_TCP_RST, icmpCode: 0 });
      else out.push({ kind: "reject", type: nft.NFT_REJECT_ICMP_UNREACH, icmpCode: layout.portUnreachable });
      return;
    case "verdict":
      out.push({ kind: "immediate", dreg: nft.NFT_REG_VERDICT, data: { verdict: verdictData(statement.verdict) } });
  }
}

const LOAD_MARK: NftExpression = { kind: "meta", key: nft.NFT_META_MARK, dreg: nft.NFT_REG_1 };

/** Expects the address in the first register. */
function destinationNat(nfproto: number, portRegister: number): NftExpression & { readonly kind: "nat" } {
  return {
    kind: "nat",
    type: nft.NFT_NAT_DNAT,
    family: nfproto,
    regAddrMin: nft.NFT_REG_1,
    regProtoMin: portRegister,
  };
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

function random(modulus: number, dreg = nft.NFT_REG_1): NftExpression {
  return { kind: "numgen", dreg, modulus, type: nft.NFT_NG_RANDOM, offset: 0 };
}

function lookupMap(set: string, dreg: number): NftExpression {
  return { kind: "lookup", set, sreg: nft.NFT_REG_1, dreg };
}

/** Fields of the connection: the direction, and the kernel's key by family. */
const CONNECTION_FIELDS = {
  "original-daddr": { direction: nft.IP_CT_DIR_ORIGINAL, ip: nft.NFT_CT_DST_IP, ip6: nft.NFT_CT_DST_IP6 },
  "original-dport": { direction: nft.IP_CT_DIR_ORIGINAL, ip: nft.NFT_CT_PROTO_DST, ip6: nft.NFT_CT_PROTO_DST },
  "reply-saddr": { direction: nft.IP_CT_DIR_REPLY, ip: nft.NFT_CT_SRC_IP, ip6: nft.NFT_CT_SRC_IP6 },
  "reply-sport": { direction: nft.IP_CT_DIR_REPLY, ip: nft.NFT_CT_PROTO_SRC, ip6: nft.NFT_CT_PROTO_SRC },
} as const;
/** All other fields are addresses. */
const OF_ONE_WORD: ReadonlySet<NftField> = new Set(["l4proto", "dport", "original-dport", "reply-sport"]);

/** Loads fields one after the other, each at the next free word, in the layout of set keys. @returns the next free word. */
function loadFields(out: NftExpression[], fields: readonly NftField[], layout: FamilyLayout, from = 0): number {
  let word = from;
  for (const field of fields) {
    const dreg = register(word);
    switch (field) {
      case "saddr":
      case "daddr":
        out.push(loadAddress(field, layout.addressBytes, layout, dreg));
        break;
      case "l4proto":
        out.push({ kind: "meta", key: nft.NFT_META_L4PROTO, dreg });
        break;
      case "dport":
        out.push({ kind: "payload", dreg, base: nft.NFT_PAYLOAD_TRANSPORT_HEADER, offset: 2, len: 2 });
        break;
      case "original-daddr":
      case "original-dport":
      case "reply-saddr":
      case "reply-sport": {
        const { direction, [layout.family]: key } = CONNECTION_FIELDS[field];
        out.push({ kind: "ct", dreg, key, direction });
        break;
      }
      default:
        out.push(loadAddress("saddr", layout.addressBytes, layout, dreg));
        out.push(bitwise(prefixMask(sourceBits(field) ?? 0, layout.addressBytes), undefined, dreg));
    }
    word += OF_ONE_WORD.has(field) ? 1 : layout.addressBytes / WORD;
  }
  return word;
}

function loadAddress(
  side: "saddr" | "daddr",
  length: number,
  layout: FamilyLayout,
  dreg = nft.NFT_REG_1,
): NftExpression {
  return {
    kind: "payload",
    dreg,
    base: nft.NFT_PAYLOAD_NETWORK_HEADER,
    offset: layout.addressAt[side],
    len: length,
  };
}

function matchAddresses(
  out: NftExpression[],
  { side, cidrs, negate }: Extract<NftStatement, { kind: "address" }>,
  layout: FamilyLayout,
  addAnonymousSet: AddAnonymousSet,
): void {
  const [only] = cidrs;
  if (only !== undefined && cidrs.length === 1) {
    matchPrefix(out, only, side, negate, layout);
    return;
  }
  const set = addAnonymousSet(addressSet(cidrs, side, layout));
  const flags = negate === true ? nft.NFT_LOOKUP_F_INV : 0;
  out.push(loadAddress(side, layout.addressBytes, layout), {
    kind: "lookup",
    set,
    sreg: nft.NFT_REG_1,
    ...(flags === 0 ? {} : { flags }),
  });
}

/** Compares a prefix of whole bytes with the address's first bytes; for other lengths, masks the whole address. */
function matchPrefix(
  out: NftExpression[],
  cidr: Cidr,
  side: "saddr" | "daddr",
  negate: boolean | undefined,
  layout: FamilyLayout,
): void {
  const { address, length } = splitCidr(cidr);
  const bytes = addressBytes(address, layout);
  if (length > 0 && length % 8 === 0) {
    out.push(loadAddress(side, length / 8, layout), compare(bytes.subarray(0, length / 8), negate));
    return;
  }
  const mask = prefixMask(length, bytes.length);
  out.push(loadAddress(side, bytes.length, layout), bitwise(mask), compare(bytes, negate));
}
