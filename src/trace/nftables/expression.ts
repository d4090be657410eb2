/**
 * Expressions that read a value: from the packet, its connection, routing, a random number, or a map. Names are libnftables'
 * (libnftables-json(5)).
 */

import type { KernelVersion } from "../../kernel/kernel-version.ts";
import { type JsonObject, listOf, named, numberOf, partsOf, textOf } from "../../kernel/nftables/json.ts";
import { expressionText } from "../../kernel/nftables/json-text.ts";
import { ipBytes, ipFromBytes, parseCidr, parseIpAddress, prefixMask, splitCidr } from "../../net/ip.ts";
import { jhash, slotOf } from "../../net/jhash.ts";
import type { NodeFacts } from "../facts.ts";
import { NO_MATCH, type Option, type StepResult } from "../netfilter/program.ts";
import { type Packet, WITH_PORTS } from "../packet.ts";
import { type ComparedField, type Key, type Question, whichOf } from "../question.ts";
import { type Pattern, prefixRange, type Scalar, type SomeParts } from "../value.ts";
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
  payload,
  payloadField,
  type Reading,
  TRANSPORTS,
  value,
} from "./packet-fields.ts";

export interface Expression {
  readonly text: string;
  /** @param drawn the random number, below {@link draw}. */
  read(packet: Packet, drawn: number): Reading;
  /** How many values the random number has that it reads: the walk tries all. Undefined if it reads none. */
  readonly draw: number | undefined;
  /** In a concatenation, the index of the random part. */
  readonly drawnPart?: number;
  /** What is added to that number, where it is a part as it is. Undefined: it is calculated with, or mapped. */
  readonly offset?: number | undefined;
  /** That number is not random: a hash of the client. The reading is unknown where the packet does not say all that is hashed. */
  readonly hash?: { readonly text: string; readonly read: (packet: Packet) => Reading } | undefined;
  /** The numbers that a map has for the packet: all others lead to nothing. Undefined: each must be tried. */
  occupied?(packet: Packet): readonly number[] | undefined;
  /** Which field each part is; undefined if the part follows from {@link asks}. */
  readonly fields: readonly (ComparedField | undefined)[];
  /** How many leading bits of each part are read; the others are 0. Undefined: all bits. */
  readonly bits?: readonly (number | undefined)[];
  /** Words for the numbers with which a part may be compared. Absent: there are none. */
  readonly names?: readonly (Names | undefined)[];
  /** Whether the value is known of no packet that has one. @default false */
  readonly isUnknown?: boolean;
  /** What else the value depends on. Undefined: on something that is not a field of the packet. */
  readonly asks: readonly Question[] | undefined;
}

export interface Surroundings {
  readonly facts: NodeFacts;
  /** As `family name`. */
  readonly table: string;
  /** Its sets into which rules write. */
  readonly written: ReadonlySet<string>;
  /** Whether the rule compares `ct protocol`. @default it does not */
  readonly isOfConnection?: boolean;
  /** The version of the kernel. @default not known */
  readonly kernel?: KernelVersion | undefined;
  /** A named set or map of the table. */
  setNamed(name: string): SetIndex | undefined;
}

/** What a packet reads as that has the field. */
export type Found = Exclude<Reading, { readonly kind: "none" }>;

/**
 * Reads the expression and judges its value; for every number, if it draws a random one or hashes the client. Where the packet has
 * none, the rule ends.
 */
export function drawn(expression: Expression, packet: Packet, judge: (reading: Found) => StepResult): StepResult {
  const { draw, hash, read } = expression;
  const judged = (reading: Reading): StepResult => (reading.kind === "none" ? NO_MATCH : judge(reading));
  if (draw === undefined) return judged(read(packet, 0));
  const hashed = hash?.read(packet);
  if (hashed?.kind === "none") return NO_MATCH;
  const odds = 1 / draw;
  const numbers = expression.occupied?.(packet) ?? Array.from({ length: draw }, (_, number) => number);
  const options = numbers.map((number): Option => {
    return { odds, result: judged(read(packet, number)), by: hash && `${hash.text} is ${number}` };
  });
  if (numbers.length < draw) {
    const by = hash && `${hash.text} is none of ${numbers.join(",")}`;
    options.push({ odds: 1 - numbers.length * odds, result: NO_MATCH, by });
  }
  if (hashed?.kind !== "value") return { kind: "choice", options };
  const at = numbers.indexOf(Number(hashed.parts[0]));
  return { kind: "choice", options, taken: at < 0 ? numbers.length : at };
}

/** Compiles an expression; one that is not understood reads as unknown. */
export function compileExpression(json: unknown, surroundings: Surroundings): Expression {
  const text = expressionText(json);
  const read = (
    reader: (packet: Packet, drawn: number) => Reading,
    { draw, offset, fields = [undefined], asks = [], names = [] }: Partial<Expression> = {},
  ): Expression => ({ text, read: reader, draw, offset, fields, asks, names });
  const unclear = (reader: (packet: Packet) => Reading): Expression => ({ ...read(reader), isUnknown: true });
  const constant = scalarOf(json);
  if (constant !== undefined) return read(() => value(constant));
  const found = named(json);
  const body = found.fields;
  switch (found.name) {
    case "payload": {
      const [protocol, field] = [textOf(body.protocol) ?? "", textOf(body.field) ?? ""];
      // Raw bytes, the packet in a tunnel, and the frame are not modelled.
      const transport = TRANSPORTS[protocol];
      const isKnown = ["ip", "ip6", "th"].includes(protocol) || transport !== undefined;
      if (!isKnown || body.tunnel !== undefined) {
        return unclear(() => ({ kind: "unknown", what: text }));
      }
      const reader = (packet: Packet) => payload(packet, protocol, field, text, surroundings.isOfConnection);
      const compared = payloadField(protocol, field);
      const isOfIp = protocol === "ip" || protocol === "ip6";
      if (isOfIp && compared !== undefined) return read(reader, { fields: [compared], names: [NAMES[field]] });
      const asks = transport === undefined ? [] : [whichOf("protocol", [transport])];
      return compared === undefined ? { ...unclear(reader), asks } : read(reader, { fields: [compared], asks });
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
      const asks = field.endsWith("Port") ? [whichOf("protocol", WITH_PORTS)] : [];
      return read(reader, { fields: [isReply ? OTHER_END[field] : `original ${field}`], asks });
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
      return read((_packet, drawn) => value(drawn + offset), { draw: numberOf(body.mod) ?? 1, offset });
    }
    case "jhash":
      return hashOf(body, surroundings, text) ?? unclear(() => ({ kind: "unknown", what: text }));
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
    ...(drawnPart < 0 ? {} : { drawnPart, hash: parts[drawnPart]?.hash }),
    ...(parts.every(({ fields }) => fields.length === 1) && { offset: parts[drawnPart]?.offset }),
    read(packet, drawn) {
      const all: Scalar[] = [];
      for (const part of parts) {
        const reading = part.read(packet, drawn);
        if (reading.kind !== "value") return incomplete(parts, packet, drawn);
        all.push(...reading.parts);
      }
      return { kind: "value", parts: all };
    },
  };
}

/** What is made of a value that is not known is not known either, and may be what a rule names. */
const ofUnknown = (reading: Reading): Reading =>
  reading.kind === "unknown" ? { kind: "unknown", what: reading.what } : reading;

/** What is known of a concatenation, one part of which has no value that is known. */
function incomplete(parts: readonly Expression[], packet: Packet, drawn: number): Reading {
  const readings = parts.map((part) => part.read(packet, drawn));
  const open = readings.find((reading) => reading.kind === "unknown" || reading.kind === "maybe");
  if (open === undefined || readings.some(({ kind }) => kind === "none")) return NONE;
  const known = readings.flatMap((reading, at): SomeParts => {
    return reading.kind === "value" ? reading.parts : (parts[at]?.fields ?? []).map(() => undefined);
  });
  return { ...open, parts: known };
}

function mapLookup(body: Readonly<Record<string, unknown>>, surroundings: Surroundings, text: string): Expression {
  const key = compileExpression(body.key, surroundings);
  const index = setIn(body.data, true, key.names ?? [], surroundings);
  return {
    text,
    draw: key.draw,
    hash: key.hash,
    occupied: (packet) => occupiedIn(index, key, packet),
    fields: [],
    asks: keyQuestions(key, index?.keys),
    read(packet, drawn) {
      const reading = key.read(packet, drawn);
      if (reading.kind !== "value") return isExcluded(reading, index) ? NONE : reading;
      if (index === undefined) return { kind: "unknown", what: text };
      const found = index.lookup(reading.parts);
      if (found === undefined) {
        const { parts } = reading;
        return index.mayHave(parts) ? { kind: "maybe", what: `${index.name} has ${parts.join(" . ")}` } : NONE;
      }
      return readingOf(found.data, text);
    },
  };
}

/** Whether what is known of a key is enough to know that a set does not have it. */
export function isExcluded(reading: Reading, index: SetIndex | undefined): boolean {
  if (!("parts" in reading) || reading.kind === "value") return false;
  return index?.excludes(reading.parts ?? [], "isChecksum" in reading) === true;
}

/** The drawn numbers for which a map has an element at this packet's key, in order. */
export function occupiedIn(
  index: SetIndex | undefined,
  key: Expression,
  packet: Packet,
): readonly number[] | undefined {
  const { offset, draw = 0, drawnPart = 0 } = key;
  const reading = key.read(packet, 0);
  if (index === undefined || offset === undefined || reading.kind !== "value" || index.mayHave(reading.parts))
    return undefined;
  const numbers = index.numbersAt(reading.parts, drawnPart)?.map((number) => number - offset);
  return numbers?.filter((number) => number >= 0 && number < draw);
}

/** More numbers than this are not tried. */
const MOST_HASHED = 65_536;

/** `jhash ip saddr . th sport mod 512 seed 0x5`; undefined if it hashes what is neither an address nor a port. */
function hashOf(body: JsonObject, surroundings: Surroundings, text: string): Expression | undefined {
  const [draw = 0, seed, offset = 0] = [numberOf(body.mod), numberOf(body.seed), numberOf(body.offset)];
  const client = compileExpression(body.expr, surroundings);
  const isKnown = client.draw === undefined && client.fields.every((field) => HASHED.test(field ?? ""));
  // The kernel draws a seed that is not written, and nft does not list it.
  if (!isKnown || seed === undefined || draw < 1 || draw > MOST_HASHED) return undefined;
  const isAlone = client.fields.length === 1;
  const read = (packet: Packet): Reading => {
    const reading = client.read(packet, 0);
    if (reading.kind !== "value") return ofUnknown(reading);
    const bytes = reading.parts.flatMap((part) => {
      const address = parseIpAddress(String(part));
      if (address !== undefined) return [...ipBytes(address)];
      const port = Number(part);
      return [port >> 8, port & 0xff, ...(isAlone ? [] : [0, 0])];
    });
    return value(slotOf(jhash(Uint8Array.from(bytes), seed), draw));
  };
  const { asks } = client;
  return {
    text,
    fields: [undefined],
    asks,
    draw,
    offset,
    hash: { text, read },
    read: (_packet, drawn) => value(drawn + offset),
  };
}

const HASHED = /(?:source|destination)(?:Port)?$/;

/** What all of them depend on; undefined if that is unknown for one. */
export function allAsked(parts: readonly Pick<Expression, "asks">[]): readonly Question[] | undefined {
  const asked = parts.flatMap(({ asks }) => (asks === undefined ? [] : [asks]));
  return asked.length === parts.length ? asked.flat() : undefined;
}

/** What a comparison of an expression with these keys depends on. */
export function keyQuestions(
  expression: Expression,
  keys: readonly Key[] | undefined,
): readonly Question[] | undefined {
  const { asks, fields, draw, bits = [] } = expression;
  if (asks === undefined || keys === undefined) return undefined;
  const isWhole = bits.every((count) => count === undefined);
  // A range of masked addresses is not a range of addresses.
  if (keys.some(({ patterns }) => patterns.some(({ kind }, at) => kind !== "exact" && bits[at] !== undefined)))
    return undefined;
  const question: Question = {
    fields,
    // All addresses with the same leading bits are one key.
    keys: isWhole
      ? keys
      : keys.map((key) => ({ ...key, patterns: key.patterns.map((one, at) => widened(one, bits[at])) })),
    values(packet) {
      const reading = expression.read(packet, 0);
      return reading.kind === "none" ? undefined : reading.parts;
    },
    drawnPart: draw === undefined ? undefined : (expression.drawnPart ?? 0),
  };
  return fields.some((field) => field !== undefined) ? [...asks, question] : asks;
}

/** What a value that is used as it is depends on; undefined if it is a field of the packet, which no keys can divide. */
export function valueQuestions({ asks, fields }: Expression): readonly Question[] | undefined {
  return fields.every((field) => field === undefined) ? asks : undefined;
}

function widened(pattern: Pattern, bits: number | undefined): Pattern {
  if (bits === undefined || pattern.kind !== "exact") return pattern;
  const cidr = parseCidr(`${pattern.value}/${bits}`);
  // No address reads as a value with more bits than the mask.
  return cidr === undefined || splitCidr(cidr).address !== pattern.value ? pattern : prefixRange(cidr);
}

/** The set or map of a lookup: a named one, or one inside the rule. */
export function setIn(
  json: unknown,
  isMap: boolean,
  names: readonly (Names | undefined)[],
  { setNamed }: Surroundings,
): SetIndex | undefined {
  const name = textOf(json);
  if (name !== undefined) return name.startsWith("@") ? setNamed(name.slice(1)) : undefined;
  const set = named(json);
  return set.name === "set" ? new SetIndex("", isMap, listOf(set.body), names) : undefined;
}

function readingOf(data: unknown, text: string): Reading {
  const parts = partsOf(data).map(scalarOf);
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

/** The address masked to its leading bits; undefined if the mask is not that of a prefix. */
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
  // A value that is calculated from a field cannot be divided by the keys.
  const ofDraw = parts.find(({ draw }) => draw !== undefined);
  const isOfField = parts.some(({ fields }) => fields.some((field) => field !== undefined));
  return {
    text,
    fields: [undefined],
    asks: isOfField ? undefined : allAsked(parts),
    draw: ofDraw?.draw,
    hash: ofDraw?.hash,
    read(packet, drawn) {
      let total: number | undefined;
      for (const part of parts) {
        const reading = part.read(packet, drawn);
        if (reading.kind !== "value") return ofUnknown(reading);
        const [operand] = reading.parts;
        if (typeof operand !== "number") return { kind: "unknown", what: text };
        total = total === undefined ? operand : OPERATIONS[operator](total, operand);
      }
      return total === undefined ? { kind: "unknown", what: text } : value(total);
    },
  };
}
