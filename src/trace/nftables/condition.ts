/** Conditions: `match` statements of libnftables' JSON. */

import { type JsonObject, listOf, named, numberOf, partsOf, textOf } from "../../kernel/nftables/json.ts";
import { isLocalQuestion } from "../facts.ts";
import { asked, GO_ON, NO_MATCH, type Step, type StepResult } from "../netfilter/program.ts";
import { hasFlags, tcpFlag } from "../packet.ts";
import { type Key, whichOf } from "../question.ts";
import { fits, orderOf, type Parts, type Pattern } from "../value.ts";
import { type Names, patternOf } from "./constant.ts";
import {
  compileExpression,
  drawn,
  type Found,
  isExcluded,
  keyQuestions,
  type Surroundings,
  setIn,
} from "./expression.ts";
import type { SetIndex } from "./named-set.ts";

/** Whether a value fits the right side. A text is a question that has to be answered first. */
type Test = (parts: Parts) => boolean | string;

/** Compiles a `match`. @param text the statement as nft prints it. */
export function compileCondition({ op, left, right }: JsonObject, text: string, surroundings: Surroundings): Step {
  const ofFlags = compileFlags(textOf(op) ?? "==", left, right, text);
  if (ofFlags !== undefined) return ofFlags;
  const odds = oddsOf(op, left, right);
  if (odds !== undefined) {
    const no = { odds: 1 - odds, result: NO_MATCH };
    return { text, asks: [], run: () => ({ kind: "choice", options: [{ odds, result: GO_ON }, no] }) };
  }
  const expression = compileExpression(left, surroundings);
  const { names = [] } = expression;
  const test = compileTest(textOf(op) ?? "==", right, names, surroundings);
  const pattern = patternOf(right, names[0]);
  const wanted = pattern?.kind === "exact" ? pattern.value : undefined;
  // The same question for a rule and its opposite, so that a walk asks it once.
  const isNegation = op === "!=" || op === "!";
  const judge = (reading: Found): StepResult => {
    switch (reading.kind) {
      case "maybe":
      case "unknown": {
        const isNoConstant = "isChecksum" in reading && wanted !== undefined && (op === "==" || op === "!=");
        if (isNoConstant || isExcluded(reading, setIn(right, false, names, surroundings)))
          return op === "!=" ? GO_ON : NO_MATCH;
        const place = /^the interface that (it .* by)$/.exec(reading.what)?.[1];
        const name = textOf(right);
        if (reading.kind === "unknown" && reading.typeOf !== undefined && wanted === "local") {
          return asked(isLocalQuestion(reading.typeOf), isNegation);
        }
        if (place !== undefined && name !== undefined && !name.startsWith("@"))
          return asked(`${place} ${name}`, isNegation);
        return asked(`${text} (${reading.what} is not known)`);
      }
      case "value": {
        const holds = test(reading.parts);
        if (typeof holds === "string") return asked(holds, isNegation);
        return holds ? GO_ON : NO_MATCH;
      }
    }
  };
  return {
    text,
    asks: keyQuestions(
      expression,
      expression.fields.every((field) => field === undefined) ? [] : keysOf(op, right, names, surroundings),
    ),
    run: (packet) => drawn(expression, packet, judge),
    observed(packet) {
      const reading = expression.read(packet, 0);
      if (reading.kind === "value") return `${expression.text} is ${reading.parts.join(" . ") || "none of these"}`;
      return reading.kind === "none" ? `the packet has no ${expression.text}` : `${reading.what} is not known`;
    },
  };
}

/** `tcp flags & (syn | ack) == syn`: of a packet, some flags are known. Undefined for other conditions. */
function compileFlags(op: string, left: unknown, right: unknown, text: string): Step | undefined {
  const masked = named(left);
  const [field, masks] = masked.name === "&" ? listOf(masked.body) : [left, 0xff];
  const { protocol, field: name } = bodyOf(field, "payload");
  const [mask, wanted] = [flagBits(masks), flagBits(right)];
  if (protocol !== "tcp" || name !== "flags" || mask === undefined || wanted === undefined) return undefined;
  const isAny = op === "in" || op === "!";
  if (!isAny && op !== "==" && op !== "!=") return undefined;
  return {
    text,
    asks: [whichOf("protocol", ["tcp"])],
    run(packet) {
      if (packet.protocol !== "tcp") return NO_MATCH;
      const holds = hasFlags(packet, isAny ? mask & wanted : mask, isAny ? 0 : wanted);
      if (holds === undefined) return asked(`${text} (tcp flags are not known)`);
      return holds === (op === "==" || op === "!") ? GO_ON : NO_MATCH;
    },
  };
}

/** `meta random & 0x7fffffff < 0x40000000`: how often it holds. Undefined for other conditions. */
function oddsOf(op: unknown, left: unknown, right: unknown): number | undefined {
  const masked = named(left);
  const [drawn, mask] = masked.name === "&" ? listOf(masked.body) : [left, 0xffff_ffff];
  const { key } = bodyOf(drawn, "meta");
  const [count, limit] = [(numberOf(mask) ?? 0) + 1, numberOf(right)];
  const isDrawn = key === "random" && count > 1 && Number.isInteger(Math.log2(count));
  if (!isDrawn || limit === undefined || limit < 1 || limit >= count || (op !== "<" && op !== ">=")) return undefined;
  return op === "<" ? limit / count : 1 - limit / count;
}

function bodyOf(json: unknown, name: string): JsonObject {
  const found = named(json);
  return found.name === name ? found.fields : {};
}

/** The bits of one flag, or of several together. */
function flagBits(json: unknown): number | undefined {
  const names = Array.isArray(json) ? json : named(json).name === "|" ? listOf(named(json).body) : undefined;
  if (names === undefined) return typeof json === "string" ? tcpFlag(json) : numberOf(json);
  return names
    .map(flagBits)
    .reduce((all, bits) => (all === undefined || bits === undefined ? undefined : all | bits), 0);
}

const isSet = (right: unknown) => textOf(right)?.startsWith("@") === true || named(right).name === "set";

type PartNames = readonly (Names | undefined)[];

function compileTest(op: string, right: unknown, names: PartNames, surroundings: Surroundings): Test {
  if (op === "!=") return inverted(compileTest("==", right, names, surroundings));
  // None of the flags is set: `ct state ! established,related`.
  if (op === "!") return inverted(compileTest("in", right, names, surroundings));
  if (op === "<" || op === ">" || op === "<=" || op === ">=") return compared(op, right);
  if (isSet(right)) return isIn(setIn(right, false, names, surroundings), textOf(right) ?? "the set");
  const patterns = listOf(right).map((one) => patternOf(one, names[0]));
  const known = patterns.flatMap((pattern) => (pattern === undefined ? [] : [pattern]));
  if (known.length < patterns.length) return () => `the value is ${JSON.stringify(right)}`;
  // At least one of the flags is set: `ct state established,related`.
  if (op === "in" || Array.isArray(right)) {
    return (parts) => parts.some((part) => known.some((pattern) => fits(pattern, part)));
  }
  return (parts) => known.length === parts.length && known.every((pattern, index) => fits(pattern, parts[index] ?? ""));
}

/** What the left side is compared with; undefined if it is not understood. */
function keysOf(op: unknown, right: unknown, names: PartNames, surroundings: Surroundings): readonly Key[] | undefined {
  if (isSet(right)) return setIn(right, false, names, surroundings)?.keys;
  const concat = partsOf(right);
  const patterns = concat
    .map((one, index) => patternOf(one, names[index]))
    .flatMap((pattern) => (pattern === undefined ? [] : [comparedWith(op, pattern)]));
  return patterns.length === concat.length ? [{ patterns, outcome: "" }] : undefined;
}

/** The range of values for which a comparison by size holds. */
function comparedWith(op: unknown, pattern: Pattern): Pattern {
  const limit = pattern.kind === "exact" ? orderOf(pattern.value) : undefined;
  if (limit === undefined) return pattern;
  const most = 1n << 128n;
  if (op === "<" || op === "<=") return { kind: "range", first: 0n, last: op === "<" ? limit - 1n : limit };
  return op === ">" || op === ">=" ? { kind: "range", first: op === ">" ? limit + 1n : limit, last: most } : pattern;
}

function inverted(test: Test): Test {
  return (parts) => {
    const holds = test(parts);
    return typeof holds === "string" ? holds : !holds;
  };
}

function isIn(index: SetIndex | undefined, name: string): Test {
  return (parts) => {
    const value = parts.join(" . ");
    if (index === undefined) return `${value} is in ${name}, which was not given`;
    if (index.lookup(parts) !== undefined) return true;
    if (index.isUnclear) return `${value} is in ${name}, of which not everything is understood`;
    return index.mayHave(parts) ? `${value} is in ${name}, which packets fill` : false;
  };
}

function compared(op: string, right: unknown): Test {
  const limit = patternOf(right);
  const range = limit?.kind === "exact" ? comparedWith(op, limit) : undefined;
  return ([value]) =>
    range?.kind === "range" && value !== undefined && orderOf(value) !== undefined
      ? fits(range, value)
      : `${value} is ${op} ${JSON.stringify(right)}`;
}
