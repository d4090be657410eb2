/**
 * A ruleset in libnftables' JSON schema, as `nft -j list ruleset` prints it, without handles.
 */
import { type IpInterval, intervalAsPrefix, mergedIntervals } from "../../net/intervals.ts";
import { type Cidr, ipFromBytes, prefixMask, splitCidr } from "../../net/ip.ts";
import {
  DYNAMIC_SET_SIZE,
  type NftChain,
  type NftElement,
  type NftFamily,
  type NftField,
  type NftHook,
  type NftKeyType,
  type NftRule,
  type NftSet,
  type NftSlotKey,
  type NftStatement,
  type NftVerdict,
  sourceBits,
} from "./ruleset.ts";

/** Anything that JSON can hold. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

const KEY_TYPES = {
  address: { ip: "ipv4_addr", ip6: "ipv6_addr" },
  protocol: { ip: "inet_proto", ip6: "inet_proto" },
  port: { ip: "inet_service", ip6: "inet_service" },
  slot: { ip: "integer", ip6: "integer" },
} as const satisfies Record<NftKeyType, Record<NftFamily, string>>;

/** nft's name for a key type. */
export function keyTypeName(type: NftKeyType, family: NftFamily): string {
  return KEY_TYPES[type][family];
}

/** nft's name for the value type of a map with targets. */
export function targetTypeName(family: NftFamily): string {
  return `${keyTypeName("address", family)} . ${keyTypeName("port", family)}`;
}

interface TableName {
  readonly family: NftFamily;
  readonly table: string;
}

/** A counter at zero. */
export function counterJson({ family, table }: TableName, name: string): Json {
  return { counter: { family, name, table, packets: 0, bytes: 0 } };
}

export function setJson({ family, table }: TableName, set: NftSet, elements: readonly NftElement[]): Json {
  const types = set.key.map((type) => keyTypeName(type, family));
  const body: Record<string, Json> = {
    family,
    name: set.name,
    table,
    type: types.length === 1 ? (types[0] ?? "") : types,
  };
  if (set.comment !== undefined) body.comment = set.comment;
  if (set.isMap) body.map = "verdict";
  if (set.hasTargets === true) body.map = targetTypeName(family);
  if (set.timeoutSeconds !== undefined) {
    Object.assign(body, { size: set.size ?? DYNAMIC_SET_SIZE, flags: ["timeout"], timeout: set.timeoutSeconds });
  }
  if (set.hasCounters === true) body.stmt = [{ counter: null }];
  if (elements.length > 0) body.elem = elements.map(elementJson);
  return set.isMap || set.hasTargets === true ? { map: body } : { set: body };
}

export function elementJson({ key, verdict, target, comment }: NftElement): Json {
  const value: Json = key.length === 1 ? (key[0] ?? "") : { concat: key };
  const element: Json = comment === undefined ? value : { elem: { val: value, comment } };
  if (target !== undefined) return [element, { concat: [target.ip, target.port] }];
  return verdict === undefined ? element : [element, verdictJson(verdict)];
}

function verdictJson(verdict: NftVerdict): Json {
  return { [verdict.kind]: "chain" in verdict ? { target: verdict.chain } : null };
}

/** A chain without its rules. */
export function chainJson({ family, table }: TableName, chain: NftChain): Json {
  return { chain: { family, table, name: chain.name, ...(chain.hook && hookJson(chain.hook)) } };
}

export function hookJson({ type, hook, priority, policy }: NftHook) {
  return { type, hook, prio: priority, policy: policy ?? "accept" };
}

export function ruleJson({ family, table }: TableName, chain: string, rule: NftRule): Json {
  const comment = rule.comment === undefined ? {} : { comment: rule.comment };
  return { rule: { family, table, chain, ...comment, expr: rule.statements.map((s) => statementJson(s, family)) } };
}

/** The expression that reads a field of the packet. */
export function fieldJson(field: NftField, family: NftFamily): Json {
  switch (field) {
    case "saddr":
    case "daddr":
      return { payload: { protocol: family, field } };
    case "l4proto":
      return { meta: { key: "l4proto" } };
    case "sport":
    case "dport":
      return { payload: { protocol: "th", field } };
    case "original-daddr":
      return { ct: { key: `${family} daddr`, dir: "original" } };
    case "original-dport":
      return { ct: { key: "proto-dst", dir: "original" } };
    case "reply-saddr":
      return { ct: { key: `${family} saddr`, dir: "reply" } };
    case "reply-sport":
      return { ct: { key: "proto-src", dir: "reply" } };
    default:
      return { "&": [fieldJson("saddr", family), sourceMask(field, family)] };
  }
}

/** The mask for reading only the first bits of the source. */
function sourceMask(field: NftField, family: NftFamily): string {
  return ipFromBytes(prefixMask(sourceBits(field) ?? 0, family === "ip" ? 4 : 16));
}

/** The expression that reads several fields as one key. */
export function keyJson(fields: readonly NftField[], family: NftFamily): Json {
  const parts = fields.map((field) => fieldJson(field, family));
  return parts.length === 1 ? (parts[0] ?? null) : { concat: parts };
}

function match(left: Json, right: Json, op = "=="): Json {
  return { match: { op, left, right } };
}

const compared = (left: Json, right: Json, negate = false) => match(left, right, negate ? "!=" : "==");

const MARK: Json = { meta: { key: "mark" } };
const OPERATORS = { or: "|", xor: "^" } as const;

export function statementJson(statement: NftStatement, family: NftFamily): Json {
  switch (statement.kind) {
    case "ct-new":
      return match({ ct: { key: "state" } }, "new", "in");
    case "ct-dnat":
      return match({ ct: { key: "status" } }, "dnat", "in");
    case "address":
      return compared(fieldJson(statement.side, family), addressesJson(statement.cidrs), statement.negate);
    case "fib-local":
      return match({ fib: { result: "type", flags: [statement.side] } }, "local");
    case "in-interface": {
      const { name, isPrefix, negate } = statement;
      return compared({ meta: { key: "iifname" } }, isPrefix ? `${name}*` : name, negate);
    }
    case "mark-test":
      return match({ "&": [MARK, statement.mask] }, 0, "!=");
    case "l4proto":
      return match({ meta: { key: "l4proto" } }, statement.protocol);
    case "lookup":
      return compared(keyJson(statement.fields, family), `@${statement.set}`, statement.negate);
    case "mark-set":
      return { mangle: { key: MARK, value: { [OPERATORS[statement.operation]]: [MARK, statement.value] } } };
    case "vmap":
      return { vmap: { key: slotKeyJson(statement, family), data: `@${statement.map}` } };
    case "random-vmap": {
      const set = statement.verdicts.map((verdict, index): Json => [index, verdictJson(verdict)]);
      return { vmap: { key: numgen(set.length), data: { set } } };
    }
    case "update":
      return { set: { op: "update", elem: fieldJson(statement.field, family), set: `@${statement.set}` } };
    case "update-map": {
      const { map, key, target } = statement;
      return { map: { op: "update", elem: keyJson(key, family), data: keyJson(target, family), map: `@${map}` } };
    }
    case "map-dnat":
      return { dnat: { family, addr: { map: { key: slotKeyJson(statement, family), data: `@${statement.map}` } } } };
    case "dnat":
      return { dnat: { addr: statement.to.ip, port: statement.to.port } };
    case "random-dnat": {
      const set = statement.targets.map(({ ip, port }, index): Json => [index, { concat: [ip, port] }]);
      return { dnat: { family, addr: { map: { key: numgen(set.length), data: { set } } } } };
    }
    case "masquerade":
      return { masquerade: { flags: "fully-random" } };
    case "counter":
      return { counter: statement.name };
    case "reject":
      if (statement.withReset === true) return { reject: { type: "tcp reset" } };
      return { reject: { type: family === "ip" ? "icmp" : "icmpv6", expr: "port-unreachable" } };
    case "verdict":
      return verdictJson(statement.verdict);
  }
}

/** The expression that draws a random number for each packet. */
export function numgen(mod: number): Json {
  return { numgen: { mode: "random", mod, offset: 0 } };
}

function slotKeyJson({ fields, slots, hash }: NftSlotKey, family: NftFamily): Json {
  if (slots === undefined) return keyJson(fields, family);
  const drawn = hash && { jhash: { mod: slots, seed: hash.seed, expr: keyJson(hash.fields, family) } };
  return { concat: [...fields.map((field) => fieldJson(field, family)), drawn ?? numgen(slots)] };
}

function addressesJson(cidrs: readonly Cidr[]): Json {
  const [only] = cidrs;
  if (cidrs.length === 1 && only !== undefined) {
    const { address, length } = splitCidr(only);
    return prefixJson(address, length);
  }
  return { set: mergedIntervals(cidrs).map(intervalJson) };
}

function prefixJson(addr: string, len: number): Json {
  return len === (addr.includes(":") ? 128 : 32) ? addr : { prefix: { addr, len } };
}

function intervalJson(interval: IpInterval): Json {
  const prefix = intervalAsPrefix(interval);
  if (prefix === undefined) return { range: [interval.first, interval.last] };
  return prefixJson(prefix.address, prefix.length);
}
