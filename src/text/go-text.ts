/**
 * Go's text forms that users of kube-proxy see in flags and error messages: quoted strings, booleans,
 * integers, floats, lists of errors.
 */
import { quoteText as quoteGo } from "../logging/escape.ts";

export { quoteGo };

/** The outcome of reading a text: the value, or upstream's error text. */
export type Parsed<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: string };

/** A successful {@link Parsed}. */
export function parsed<T>(value: T): Parsed<T> {
  return { ok: true, value };
}

/** A failed {@link Parsed}. */
export function refused<T>(error: string): Parsed<T> {
  return { ok: false, error };
}

const TRUE_WORDS: ReadonlySet<string> = new Set(["1", "t", "T", "true", "TRUE", "True"]);
const FALSE_WORDS: ReadonlySet<string> = new Set(["0", "f", "F", "false", "FALSE", "False"]);

/** Reads a boolean with the twelve spellings that Go accepts (reference start.md §2.1). */
export function parseGoBool(text: string): Parsed<boolean> {
  if (TRUE_WORDS.has(text)) return parsed(true);
  if (FALSE_WORDS.has(text)) return parsed(false);
  return refused(`strconv.ParseBool: parsing ${quoteGo(text)}: invalid syntax`);
}

const INTEGER = /^[+-]?(?:0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO]?(?:_?[0-7])+|0|[1-9](?:_?[0-9])*)$/;

/** Which integers a flag takes: the Go function that reads them, the limits, and whether prefixes (`0x`) are read. */
interface IntegerKind {
  readonly reader: "ParseInt" | "ParseUint";
  readonly least: bigint;
  readonly greatest: bigint;
  readonly prefixes: boolean;
}

/** 32-bit signed integers in any base, as flags of type int32 take them. */
export const INT32: IntegerKind = { reader: "ParseInt", least: -(2n ** 31n), greatest: 2n ** 31n - 1n, prefixes: true };

/** Decimal integers of `--v` and `--vmodule`, which the logging library limits to 31 bits. */
export const VERBOSITY: IntegerKind = { reader: "ParseUint", least: 0n, greatest: 2n ** 31n - 1n, prefixes: false };

/** Reads an integer of a kind; the error says `invalid syntax` or `value out of range` as Go does. */
export function parseGoInteger(text: string, kind: IntegerKind): Parsed<number> {
  const shape = kind.prefixes ? INTEGER : /^[+-]?[0-9]+$/;
  const signed = /^[+-]/.test(text);
  if (!shape.test(text) || (signed && kind.reader === "ParseUint")) {
    return refused(`strconv.${kind.reader}: parsing ${quoteGo(text)}: invalid syntax`);
  }
  const digits = text.replace(/^[+-]/, "").replaceAll("_", "");
  const octal = kind.prefixes && /^0[0-7]/.test(digits);
  const size = BigInt(octal ? `0o${digits.slice(1)}` : digits);
  const value = text.startsWith("-") ? -size : size;
  if (value < kind.least || value > kind.greatest) {
    return refused(`strconv.${kind.reader}: parsing ${quoteGo(text)}: value out of range`);
  }
  return parsed(Number(value));
}

/** Digits with single underscores between them. */
const DIGITS = "[0-9](?:_?[0-9])*";
const HEX_DIGITS = "[0-9a-fA-F](?:_?[0-9a-fA-F])*";
const DECIMAL_FLOAT = new RegExp(`^[+-]?(?:${DIGITS}\\.?(?:${DIGITS})?|\\.${DIGITS})(?:[eE][+-]?${DIGITS})?$`);
const HEX_FLOAT = new RegExp(
  `^([+-]?)0[xX]_?(?:(${HEX_DIGITS})\\.?(${HEX_DIGITS})?|\\.(${HEX_DIGITS}))[pP]([+-]?${DIGITS})$`,
);

/** Reads a 32-bit float: decimal or hexadecimal, with optional underscores between digits. */
export function parseGoFloat32(text: string): Parsed<number> {
  const hex = HEX_FLOAT.exec(text);
  if (hex === null && !DECIMAL_FLOAT.test(text)) {
    return refused(`strconv.ParseFloat: parsing ${quoteGo(text)}: invalid syntax`);
  }
  const value = hex === null ? Number(text.replaceAll("_", "")) : hexValue(hex);
  if (!Number.isFinite(Math.fround(value))) {
    return refused(`strconv.ParseFloat: parsing ${quoteGo(text)}: value out of range`);
  }
  return parsed(toFloat32(value));
}

function hexValue([, sign, whole = "", fraction = "", onlyFraction = "", exponent = ""]: RegExpExecArray): number {
  const plain = (digits: string): string => digits.replaceAll("_", "");
  const behind = plain(fraction + onlyFraction);
  const mantissa = Number(BigInt(`0x${plain(whole)}${behind}`));
  const value = mantissa * 2 ** (Number(plain(exponent)) - 4 * behind.length);
  return sign === "-" ? -value : value;
}

/**
 * The value of a 32-bit float as the shortest decimal that identifies it: 0.1 stays 0.1 and does not become
 * 0.10000000149011612 when it is printed.
 */
export function toFloat32(value: number): number {
  const single = Math.fround(value);
  for (let digits = 1; digits < 9; digits++) {
    const short = Number(single.toPrecision(digits));
    if (Math.fround(short) === single) return short;
  }
  return single;
}

/** Joins errors as upstream prints them: one bare, several as `[a, b]`, duplicates once. */
export function joinErrors(errors: readonly string[]): string {
  const distinct = [...new Set(errors)];
  return distinct.length === 1 ? `${distinct[0]}` : `[${distinct.join(", ")}]`;
}
