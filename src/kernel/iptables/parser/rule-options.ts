/** The options of one match or target in a rule, and parsers for their values. */
import {
  type Cidr,
  familyOf,
  hostCidr,
  type IpAddress,
  type IpFamily,
  parseCidr,
  parseIpAddress,
} from "../../../net/ip.ts";

type RuleSyntaxCode =
  | "bad_quotes"
  | "bad_argument"
  | "bad_value"
  | "missing_value"
  | "unknown_match"
  | "unknown_option";

/** The text is no rule, or has an unsupported match or option. */
export class RuleSyntaxError extends Error {
  override readonly name = "RuleSyntaxError";
  readonly code: RuleSyntaxCode;
  constructor(code: RuleSyntaxCode, message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * Splits a line as iptables-restore does: at spaces and tabs. A word in double quotes may contain spaces; a backslash
 * escapes the next character; single quotes are plain characters. Throws {@link RuleSyntaxError} `bad_quotes`.
 */
export function splitWords(line: string): string[] {
  if (!line.includes('"') && !line.includes("\\")) return line.split(/[ \t]+/).filter((word) => word !== "");
  const words: string[] = [];
  let word: string | undefined;
  let quoted = false;
  for (let at = 0; at < line.length; at += 1) {
    const char = line[at] ?? "";
    if (char === "\\" && at + 1 < line.length) {
      at += 1;
      word = (word ?? "") + (line[at] ?? "");
    } else if (char === '"') {
      quoted = !quoted;
      word ??= "";
    } else if (!quoted && (char === " " || char === "\t")) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else {
      word = (word ?? "") + char;
    }
  }
  if (quoted) throw new RuleSyntaxError("bad_quotes", `a double quote is not closed: ${line}`);
  if (word !== undefined) words.push(word);
  return words;
}

const NEEDS_NO_QUOTES = /^[A-Za-z0-9_-]+$/;

/** One word as iptables-save prints user text: quoted unless it has only letters, digits, `-` and `_`. */
export function quoteWord(word: string): string {
  return NEEDS_NO_QUOTES.test(word) ? word : `"${word.replace(/["\\']/g, "\\$&")}"`;
}

/** The syntax of a match or a target. */
export interface ExtensionSyntax<T> {
  /** Number of values per option; two values form one text, separated by a space. */
  readonly options: Readonly<Record<string, 0 | 1 | 2>>;
  /** Options that accept `!`. @default none */
  readonly invertible?: readonly string[];
  /** Alternative spellings of options. */
  readonly aliases?: Readonly<Record<string, string>>;
  /** Throws {@link RuleSyntaxError}. */
  build(given: GivenOptions, context: RuleContext): T;
  /** The text after `-m NAME` or `-j NAME`, with a space before each word. */
  print(extension: T): string;
}

/** An extension whose `kind` is its name and whose data comes from its options. */
export function extension<K extends string, T extends object>(
  kind: K,
  { build, ...syntax }: ExtensionSyntax<T>,
): ExtensionSyntax<Readonly<T> & { readonly kind: K }> {
  return { ...syntax, build: (given, context) => ({ ...build(given, context), kind }) };
}

/** What an extension may need to know of the rest of the rule. */
export interface RuleContext {
  readonly family: IpFamily;
  /** The protocol given with `-p`; undefined if there is none or it is negated. */
  readonly protocol: string | undefined;
}

/** One option with its value; `""` for options without a value. */
interface Given {
  readonly value: string;
  readonly negated: boolean;
}

/** The options of one extension in a rule, by their main spelling. */
export class GivenOptions {
  readonly #extension: string;
  readonly #given = new Map<string, Given>();

  /** @param extension its name, for errors. */
  constructor(extension: string) {
    this.#extension = extension;
  }

  add(option: string, given: Given): void {
    if (this.#given.has(option)) throw this.error(`option "${option}" can only be used once`);
    this.#given.set(option, given);
  }

  get(option: string): Given | undefined {
    return this.#given.get(option);
  }

  has(option: string): boolean {
    return this.#given.has(option);
  }

  /** Throws if the option is missing. */
  require(option: string): Given {
    const given = this.#given.get(option);
    if (given === undefined) throw this.error(`option "${option}" must be specified`);
    return given;
  }

  /** The only one of these options that the rule gives. Throws unless there is exactly one. */
  exactlyOne<O extends string>(options: readonly O[]): O {
    const found = options.filter((option) => this.#given.has(option));
    const [only] = found;
    if (only === undefined || found.length > 1) throw this.error(`exactly one of ${options.join(", ")} must be given`);
    return only;
  }

  error(problem: string): RuleSyntaxError {
    return new RuleSyntaxError("bad_value", `${this.#extension}: ${problem}`);
  }
}

function badValue(what: string, text: string): RuleSyntaxError {
  return new RuleSyntaxError("bad_value", `${what} ${JSON.stringify(text)} is not valid`);
}

/** An integer in decimal or `0x` hexadecimal. */
export function parseNumber(what: string, text: string, max: number): number {
  const value = /^(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+)$/.test(text) ? Number(text) : Number.NaN;
  if (!(value <= max)) throw badValue(what, text);
  return value;
}

/** `value` or `value/mask`; the default mask is all ones. */
export function parseMark(text: string): { readonly value: number; readonly mask: number; readonly hasMask: boolean } {
  const [value = "", mask, ...rest] = text.split("/");
  if (rest.length > 0) throw badValue("mark", text);
  return {
    value: parseNumber("mark", value, 0xffffffff),
    mask: mask === undefined ? 0xffffffff : parseNumber("mark mask", mask, 0xffffffff),
    hasMask: mask !== undefined,
  };
}

/** Lower-case hex without padding, as the tools print marks. */
export function hex(value: number): string {
  return `0x${(value >>> 0).toString(16)}`;
}

// Rejected: octets with leading zeros are octal to the tools and decimal to Kubernetes.
const AMBIGUOUS_OCTET = /(?:^|\.)0[0-9]/;

export function parseAddress(text: string, family: IpFamily): IpAddress {
  const address = AMBIGUOUS_OCTET.test(text) ? undefined : parseIpAddress(text);
  if (address === undefined || familyOf(address) !== family) {
    throw new RuleSyntaxError("bad_value", `host/network ${JSON.stringify(text)} is not an ${family} address`);
  }
  return address;
}

/** An address or prefix of the family; clears host bits. */
export function parseNetwork(text: string, family: IpFamily): Cidr {
  const slash = text.indexOf("/");
  if (slash < 0) return hostCidr(parseAddress(text, family));
  const cidr = parseCidr(`${parseAddress(text.slice(0, slash), family)}${text.slice(slash)}`);
  if (cidr === undefined)
    throw new RuleSyntaxError("bad_value", `prefix length of ${JSON.stringify(text)} is not valid`);
  return cidr;
}

/** Comma-separated names from a list, in any case; returned in the list's order. */
export function parseNames<T extends string>(what: string, text: string, known: readonly T[]): readonly T[] {
  const given = new Set(text.toUpperCase().split(","));
  const found = known.filter((name) => given.has(name));
  if (found.length !== given.size) throw badValue(what, text);
  return found;
}
