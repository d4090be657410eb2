/**
 * Expressions that read a value: of the packet, of its connection, of routing, at random, or from a map. Names are libnftables'
 * (libnftables-json(5)). Pure.
 */

import { isObject, listOf, named, numberOf, textOf } from "../../kernel/nftables/json.ts";
import { expressionText } from "../../kernel/nftables/json-text.ts";
import { ipBytes, ipFromBytes, parseCidr, parseIpAddress, prefixMask, splitCidr } from "../../net/ip.ts";
import type { NodeFacts } from "../facts.ts";
import type { StepResult } from "../netfilter/program.ts";
import type { Packet } from "../packet.ts";
import { type ComparedField, type Key, type Question, whichOf } from "../question.ts";
import { type Pattern, prefixRange } from "../value.ts";
import { NAMES, type Names, scalarOf } from "./constant.ts";
import { SetIndex } from "./named-set.ts";
import {
  CONNECTION_FIELDS,
  connection,
  fib,
  META_FIELDS,
  meta,
  NONE,
  OTHER_END,
  PAYLOAD_FIELDS,
  payload,
  type Reading,
  value,
} from "./packet-fields.ts";

export interface Expression {
  readonly text: string;
  /** @param drawn below {@link draw}. */
  read(packet: Packet, drawn: number): Reading;
  /** How many values the random number has on which this depends: the walk tries all. Undefined where it depends on none. */
  readonly draw: number | undefined;
  /** Of a concatenation: the index of the part that is that number. */
  readonly drawnPart?: number;
  /** Which field each part is; undefined: it follows from what is asked. */
  readonly fields: readonly (ComparedField | undefined)[];
  /** Of how many of a part's first bits is read: an address whose others are 0. Absent: of all. */
  readonly bits?: readonly (number | undefined)[];
  /** Of parts that may be compared with numbers in place of words. Absent: none is. */
  readonly names?: readonly (Names | undefined)[];
  /** What else the reading depends on. Undefined: on something that is not a field of the packet. */
  readonly asks: readonly Question[] | undefined;
}

export interface Surroundings {
  readonly facts: NodeFacts;
  /** Named sets and maps of the table. */
  setNamed(name: string): SetIndex | undefined;
}

/** Reads the expression and judges what it gives; where it draws a number, for every number. */
export function drawn({ draw, read }: Expression, packet: Packet, judge: (reading: Reading) => StepResult): StepResult {
  if (draw === undefined) return judge(read(packet, 0));
  const odds = 1 / draw;
  const options = Array.from({ length: draw }, (_, number) => ({ odds, result: judge(read(packet, number)) }));
  return { kind: "choice", options };
}

/** Compiles an expression; one that is not understood reads as unknown. */
export function compileExpression(json: unknown, surroundings: Surroundings): Expression {
  const text = expressionText(json);
  const read = (
    reader: (packet: Packet, drawn: number) => Reading,
    { draw, fields = [undefined], asks = [], names = [] }: Partial<Expression> = {},
  ): Expression => ({ text, read: reader, draw, fields, asks, names });
  const unclear = (reader: (packet: Packet) => Reading): Expression => ({ ...read(reader), asks: undefined });
  const constant = scalarOf(json);
  if (constant !== undefined) return read(() => value(constant));
  const found = named(json);
  const body = found !== undefined && isObject(found.body) ? found.body : {};
  switch (found?.name) {
    case "payload": {
      const [protocol, field] = [textOf(body.protocol) ?? "", textOf(body.field) ?? ""];
      const reader = (packet: Packet) => payload(packet, protocol, field, text);
      const compared = PAYLOAD_FIELDS[field];
      if (compared === undefined) return unclear(reader);
      if (protocol === "ip" || protocol === "ip6") return read(reader, { fields: [compared], names: [NAMES[field]] });
      // Of any transport header, ICMP's has no ports.
      const asks = [whichOf("protocol", protocol === "th" ? ["icmp", "icmpv6"] : [protocol])];
      return read(reader, { fields: [compared], asks });
    }
    case "meta": {
      const key = textOf(body.key) ?? textOf(found.body) ?? "";
      const reader = (packet: Packet) => meta(packet, key);
      const field = META_FIELDS[key];
      if (field === undefined && !FAMILY_OR_MARK.includes(key)) return unclear(reader);
      return read(reader, { fields: [field === "outInterface" ? undefined : field], names: [NAMES[key]] });
    }
    case "ct": {
      const key = textOf(body.key) ?? "";
      const isReply = body.dir === "reply";
      const reader = (packet: Packet) => connection(packet, key, text, isReply);
      const field = CONNECTION_FIELDS[key];
      if (["state", "status", "direction", "mark"].includes(key)) return read(reader, { names: [NAMES[key]] });
      if (key === "protocol") return read(reader, { fields: ["protocol"], names: [NAMES[key]] });
      if (field === undefined) return unclear(reader);
      return read(reader, { fields: [isReply ? OTHER_END[field] : `original ${field}`] });
    }
    case "fib": {
      const flags = listOf(body.flags);
      const result = textOf(body.result) ?? "";
      const reader = (packet: Packet) => fib(packet, result, flags, surroundings.facts, text);
      const side = flags[0] === "saddr" ? "source" : "destination";
      return read(reader, { asks: [surroundings.facts.about[side]], names: [NAMES[result]] });
    }
    case "numgen": {
      const offset = numberOf(body.offset) ?? 0;
      return read((_packet, drawn) => value(drawn + offset), { draw: numberOf(body.mod) ?? 1 });
    }
    case "concat":
      return concatenation(listOf(found.body), surroundings, text);
    case "map":
      return mapLookup(body, surroundings, text);
    case "&":
    case "|":
    case "^":
    case "<<":
    case ">>":
      return calculation(found.name, listOf(found.body), surroundings, text);
    default:
      return unclear(() => ({ kind: "unknown", what: text }));
  }
}

const FAMILY_OR_MARK = ["mark", "nfproto", "protocol"];

function concatenation(items: readonly unknown[], surroundings: Surroundings, text: string): Expression {
  const parts = items.map((item) => compileExpression(item, surroundings));
  const drawnPart = parts.findIndex(({ draw }) => draw !== undefined);
  return {
    text,
    fields: parts.flatMap(({ fields }) => fields),
    bits: parts.flatMap(({ fields, bits = fields.map(() => undefined) }) => bits),
    names: parts.flatMap(({ fields, names = [] }) => fields.map((_, at) => names[at])),
    asks: allAsked(parts),
    draw: parts[drawnPart]?.draw,
    ...(drawnPart < 0 ? {} : { drawnPart }),
    read(packet, drawn) {
      const all: (string | number)[] = [];
      for (const part of parts) {
        const reading = part.read(packet, drawn);
        if (reading.kind !== "value") return reading;
        all.push(...reading.parts);
      }
      return { kind: "value", parts: all };
    },
  };
}

function mapLookup(body: Readonly<Record<string, unknown>>, surroundings: Surroundings, text: string): Expression {
  const key = compileExpression(body.key, surroundings);
  const index = mapOf(body.data, key, surroundings);
  return {
    text,
    draw: key.draw,
    fields: [],
    asks: keyQuestions(key, index?.keys),
    read(packet, drawn) {
      const reading = key.read(packet, drawn);
      if (reading.kind !== "value") return reading;
      if (index === undefined) return { kind: "unknown", what: text };
      const found = index.lookup(reading.parts);
      if (found === undefined) {
        return index.isUnknown ? { kind: "maybe", what: `${index.name} has ${reading.parts.join(" . ")}` } : NONE;
      }
      return partsOf(found.data, text);
    },
  };
}

/** What all of them ask; undefined where one asks what is not known. */
export function allAsked(parts: readonly Pick<Expression, "asks">[]): readonly Question[] | undefined {
  const asked = parts.flatMap(({ asks }) => (asks === undefined ? [] : [asks]));
  return asked.length === parts.length ? asked.flat() : undefined;
}

/** What a comparison of an expression with these keys depends on. Pure. */
export function keyQuestions(
  expression: Expression,
  keys: readonly Key[] | undefined,
): readonly Question[] | undefined {
  const { asks, fields, draw, bits = [] } = expression;
  if (asks === undefined || keys === undefined) return undefined;
  const isWhole = bits.every((count) => count === undefined);
  // Ranges of what is left of an address are no ranges of addresses.
  if (keys.some(({ patterns }) => patterns.some(({ kind }, at) => kind !== "exact" && bits[at] !== undefined)))
    return undefined;
  const question: Question = {
    fields,
    // All addresses with the same first bits are one key.
    keys: isWhole
      ? keys
      : keys.map((key) => ({ ...key, patterns: key.patterns.map((one, at) => widened(one, bits[at])) })),
    values(packet) {
      const reading = expression.read(packet, 0);
      return reading.kind === "value" ? reading.parts : undefined;
    },
    drawnPart: draw === undefined ? undefined : (expression.drawnPart ?? 0),
  };
  return fields.some((field) => field !== undefined) ? [...asks, question] : asks;
}

/** What depends on a value that is taken as it is; undefined where that is a field of the packet: no keys divide it. Pure. */
export function valueQuestions({ asks, fields }: Expression): readonly Question[] | undefined {
  return fields.every((field) => field === undefined) ? asks : undefined;
}

function widened(pattern: Pattern, bits: number | undefined): Pattern {
  if (bits === undefined || pattern.kind !== "exact") return pattern;
  const cidr = parseCidr(`${pattern.value}/${bits}`);
  // With other bits than these there is no address that reads so.
  return cidr === undefined || splitCidr(cidr).address !== pattern.value ? pattern : prefixRange(cidr);
}

/** The map that a lookup of a key names or brings along. */
export function mapOf(
  data: unknown,
  { names = [] }: Pick<Expression, "names">,
  { setNamed }: Surroundings,
): SetIndex | undefined {
  const name = textOf(data);
  if (name !== undefined) return name.startsWith("@") ? setNamed(name.slice(1)) : undefined;
  const set = named(data);
  return set?.name === "set" ? new SetIndex("", true, listOf(set.body), names) : undefined;
}

function partsOf(data: unknown, text: string): Reading {
  const concat = named(data);
  const parts = (concat?.name === "concat" ? listOf(concat.body) : [data]).map(scalarOf);
  const known = parts.flatMap((part) => (part === undefined ? [] : [part]));
  return known.length === parts.length ? { kind: "value", parts: known } : { kind: "unknown", what: text };
}

const OPERATIONS = {
  "&": (a: number, b: number) => (a & b) >>> 0,
  "|": (a: number, b: number) => (a | b) >>> 0,
  "^": (a: number, b: number) => (a ^ b) >>> 0,
  "<<": (a: number, b: number) => (a << b) >>> 0,
  ">>": (a: number, b: number) => a >>> b,
} as const;

/** The address with all but its first bits 0; undefined where the mask is none of a prefix. */
function maskedAddress(address: Expression, mask: unknown, text: string): Expression | undefined {
  const parsed = typeof mask === "string" ? parseIpAddress(mask) : undefined;
  if (parsed === undefined) return undefined;
  const bytes = ipBytes(parsed);
  const bits = bytes.reduce((count, byte) => count + byte.toString(2).replaceAll("0", "").length, 0);
  if (ipFromBytes(prefixMask(bits, bytes.length)) !== parsed) return undefined;
  return {
    ...address,
    text,
    bits: [bits],
    read(packet, drawn) {
      const reading = address.read(packet, drawn);
      if (reading.kind !== "value") return reading;
      const cidr = parseCidr(`${reading.parts[0]}/${bits}`);
      return cidr === undefined ? { kind: "unknown", what: text } : value(splitCidr(cidr).address);
    },
  };
}

function calculation(
  operator: keyof typeof OPERATIONS,
  operands: readonly unknown[],
  surroundings: Surroundings,
  text: string,
): Expression {
  const parts = operands.map((operand) => compileExpression(operand, surroundings));
  const [field, other] = parts;
  const masked =
    operator === "&" && field !== undefined && other !== undefined && parts.length === 2
      ? maskedAddress(field, operands[1], text)
      : undefined;
  if (masked !== undefined) return masked;
  // What is calculated from a field is not compared as it stands.
  const isOfField = parts.some(({ fields }) => fields.some((field) => field !== undefined));
  return {
    text,
    fields: [undefined],
    asks: isOfField ? undefined : allAsked(parts),
    draw: parts.find(({ draw }) => draw !== undefined)?.draw,
    read(packet, drawn) {
      let total: number | undefined;
      for (const part of parts) {
        const reading = part.read(packet, drawn);
        if (reading.kind !== "value") return reading;
        const [operand] = reading.parts;
        if (typeof operand !== "number") return { kind: "unknown", what: text };
        total = total === undefined ? operand : OPERATIONS[operator](total, operand);
      }
      return total === undefined ? { kind: "unknown", what: text } : value(total);
    },
  };
}
