/** Expressions and constants of nft's listings, as libnftables' JSON has them (libnftables-json(5)). */
import { parseIpAddress } from "../../../net/ip.ts";
import { NftTextError, unquoted, type WordReader } from "./words.ts";

/** Keys that nft prints without the word `meta`. */
const BARE_META = new Set(["iif", "iifname", "oif", "oifname"]);
const HEADERS = new Set([
  ...["ip", "ip6", "tcp", "udp", "udplite", "sctp", "dccp", "th", "icmp", "icmpv6", "ether", "arp", "vlan"],
  ...["ah", "esp", "comp", "igmp"],
]);
const NAMED = /^[a-z][\w-]*$/;
const OPERATORS: Readonly<Record<string, string>> = {
  ...{ "&": "&", "|": "|", "^": "^", "<<": "<<", ">>": ">>" },
  ...{ and: "&", or: "|", xor: "^", lshift: "<<", rshift: ">>" },
};
const FIB_FLAGS = new Set(["saddr", "daddr", "mark", "iif", "oif"]);

/** Whether a word begins something that is read of the packet or the node, and no constant. */
export function beginsExpression(word: string): boolean {
  return HEADERS.has(word) || BARE_META.has(word) || ["meta", "ct", "fib", "numgen", "("].includes(word);
}

/** An expression: parts of a concatenation, calculations, and what a map has for it. @throws NftTextError */
export function readExpression(words: WordReader): unknown {
  const parts = [readCalculation(words)];
  while (words.takes(".")) parts.push(readCalculation(words));
  const key = parts.length === 1 ? parts[0] : { concat: parts };
  if (!words.takes("map")) return key;
  return { map: { key, data: words.peek() === "{" ? { set: readElements(words) } : words.next() } };
}

function readCalculation(words: WordReader): unknown {
  let left = readPrimary(words);
  for (let operator = OPERATORS[words.peek() ?? ""]; operator !== undefined; operator = OPERATORS[words.peek() ?? ""]) {
    words.next();
    left = { [operator]: [left, readPrimary(words)] };
  }
  return left;
}

function readPrimary(words: WordReader): unknown {
  const word = words.next();
  if (word === "(") {
    const inner = readCalculation(words);
    words.expect(")");
    return inner;
  }
  if (word === "meta") return { meta: { key: words.next() } };
  if (BARE_META.has(word)) return { meta: { key: word } };
  if (word === "ct") return readConnection(words);
  if (word === "fib") return readFib(words);
  if (word === "numgen") return readDraw(words);
  const field = words.peek() ?? "";
  if (HEADERS.has(word) && NAMED.test(field)) return { payload: { protocol: word, field: words.next() } };
  return constantOf(word);
}

function readConnection(words: WordReader): unknown {
  const first = words.next();
  const isDirected = first === "original" || first === "reply";
  const word = isDirected ? words.next() : first;
  const key = word === "ip" || word === "ip6" ? `${word} ${words.next()}` : word;
  if (key === "count" || key === "helper" || key === "timeout" || key === "expectation") {
    throw new NftTextError(`ct ${key} is not understood`);
  }
  return { ct: isDirected ? { key, dir: first } : { key } };
}

function readFib(words: WordReader): unknown {
  const flags = [words.next()];
  while (words.takes(".")) flags.push(words.next());
  if (!flags.every((flag) => FIB_FLAGS.has(flag))) throw new NftTextError(`fib ${flags.join(" . ")} is not understood`);
  return { fib: { result: words.next(), flags } };
}

function readDraw(words: WordReader): unknown {
  const mode = words.next();
  words.expect("mod");
  const mod = Number(words.next());
  return { numgen: { mode, mod, offset: words.takes("offset") ? Number(words.next()) : 0 } };
}

/** A constant in one word: a number, a name, an address, a prefix or a range. */
export function constantOf(word: string): unknown {
  if (word.startsWith('"')) return unquoted(word);
  if (/^(?:\d+|0x[0-9a-f]+)$/i.test(word)) return Number(word);
  const slash = word.lastIndexOf("/");
  if (slash > 0 && parseIpAddress(word.slice(0, slash)) !== undefined) {
    return { prefix: { addr: word.slice(0, slash), len: Number(word.slice(slash + 1)) } };
  }
  const dash = word.indexOf("-");
  const ends = dash > 0 ? [word.slice(0, dash), word.slice(dash + 1)] : [];
  if (ends.length > 0 && ends.every((end) => /^(?:\d+|0x[0-9a-f]+)$/i.test(end) || parseIpAddress(end) !== undefined)) {
    return { range: ends.map(constantOf) };
  }
  if (/^[{},;@]/.test(word)) throw new NftTextError(`"${word}" is not understood here`);
  return word;
}

/** What stands on the right of a comparison. */
export function readRight(words: WordReader): unknown {
  const word = words.peek() ?? "";
  if (word.startsWith("@")) return words.next();
  if (word === "{") return { set: readElements(words) };
  // Flags, any of which is meant: in one word.
  if (/^[a-z]+(?:,[a-z]+)+$/.test(word)) return words.next().split(",");
  const parts = [readRightPart(words)];
  while (words.takes(".")) parts.push(readRightPart(words));
  return parts.length === 1 ? parts[0] : { concat: parts };
}

function readRightPart(words: WordReader): unknown {
  const value = words.peek() === "(" ? readCalculation(words) : constantOf(words.next());
  const operator = OPERATORS[words.peek() ?? ""];
  if (operator === undefined) return value;
  words.next();
  return { [operator]: [value, constantOf(words.next())] };
}

const VERDICTS = new Set(["accept", "drop", "return", "continue", "queue"]);

/** `{ … }` of a set or map. */
export function readElements(words: WordReader): unknown[] {
  words.expect("{");
  const elements: unknown[] = [];
  while (!words.takes("}")) {
    elements.push(readElement(words));
    words.takes(",");
  }
  return elements;
}

function readElement(words: WordReader): unknown {
  const parts = [constantOf(words.next())];
  const more: Record<string, unknown> = {};
  for (;;) {
    if (words.takes(".")) parts.push(constantOf(words.next()));
    else if (words.takes("comment")) more.comment = unquoted(words.next());
    else if (words.takes("timeout")) more.timeout = secondsOf(words.next());
    else if (words.takes("expires")) more.expires = secondsOf(words.next());
    else if (words.takes("counter")) skipCounter(words);
    else break;
  }
  const value = parts.length === 1 ? parts[0] : { concat: parts };
  const element = Object.keys(more).length === 0 ? value : { elem: { val: value, ...more } };
  return words.takes(":") ? [element, readData(words)] : element;
}

function readData(words: WordReader): unknown {
  const word = words.peek() ?? "";
  if (VERDICTS.has(word)) return { [words.next()]: null };
  if (word === "jump" || word === "goto") return { [words.next()]: { target: words.next() } };
  return readRight(words);
}

/** `packets 1 bytes 60`, where it stands. */
export function skipCounter(words: WordReader): void {
  for (const word of ["packets", "bytes"]) if (words.takes(word)) words.next();
}

const UNITS: Readonly<Record<string, number>> = { d: 86_400, h: 3_600, m: 60, s: 1, ms: 0.001 };

/** `1d2h3m4s`, `10m0s`, `900ms` in whole seconds. */
export function secondsOf(text: string): number {
  const parts = [...text.matchAll(/(\d+)(ms|[dhms])/g)];
  return Math.floor(parts.reduce((sum, [, count, unit = ""]) => sum + Number(count) * (UNITS[unit] ?? 0), 0));
}
