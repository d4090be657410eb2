/** Rules of nft's listings, as libnftables' JSON has them. What is not understood stays as `{ opaque: text }`. */
import { parseIpAddress } from "../../../net/ip.ts";
import { beginsExpression, readExpression, readRight, skipCounter } from "./expression.ts";
import { NftTextError, unquoted, type WordReader } from "./words.ts";

/** A rule's statements, and its comment. */
export interface ReadRule {
  readonly expr: readonly unknown[];
  readonly comment?: string;
}

/** Reads a rule to its end. */
export function readRule(words: WordReader): ReadRule {
  const expr: unknown[] = [];
  while (!words.isAtEnd) {
    if (words.takes("comment")) return { expr, comment: unquoted(words.next()) };
    const start = words.position;
    try {
      expr.push(readStatement(words));
    } catch (error) {
      if (!(error instanceof NftTextError)) throw error;
      expr.push({ opaque: words.restFrom(start) });
    }
  }
  return { expr };
}

const COMPARISONS = new Set(["==", "!=", "<", ">", "<=", ">="]);
const TRANSLATION_FLAGS = new Set(["random", "fully-random", "persistent"]);

function readStatement(words: WordReader): unknown {
  const word = words.peek() ?? "";
  switch (word) {
    case "accept":
    case "drop":
    case "return":
    case "continue":
    case "notrack":
      return { [words.next()]: null };
    case "jump":
    case "goto":
      return { [words.next()]: { target: words.next() } };
    case "counter":
      words.next();
      if (words.takes("name")) return { counter: unquoted(words.next()) };
      skipCounter(words);
      return { counter: null };
    case "log":
      words.next();
      return { log: readLog(words) };
    case "limit":
      words.next();
      return { limit: readLimit(words) };
    case "reject":
      words.next();
      return { reject: readRefusal(words) };
    case "masquerade":
    case "redirect":
    case "dnat":
    case "snat":
      words.next();
      return { [word]: readTranslation(words) };
    case "add":
    case "update":
    case "delete":
      return readEntry(words);
    case "queue":
    case "tproxy":
    case "synproxy":
    case "flow":
    case "dup":
    case "fwd":
    case "xt":
      throw new NftTextError(`${word} is not understood`);
    default:
      return readCondition(words);
  }
}

/** A comparison, a verdict map, or a value that is set. */
function readCondition(words: WordReader): unknown {
  const first = words.peek() ?? "";
  if (!beginsExpression(first)) throw new NftTextError(`${first} is not understood`);
  const left = readExpression(words);
  if (words.takes("vmap")) {
    const data = words.peek() === "{" ? readRight(words) : words.next();
    return { vmap: { key: left, data } };
  }
  if (words.takes("set")) return { mangle: { key: left, value: readExpression(words) } };
  const sign = words.peek() ?? "";
  if (COMPARISONS.has(sign)) {
    words.next();
    return { match: { op: sign, left, right: readRight(words) } };
  }
  const right = readRight(words);
  // `tcp flags syn / syn,ack`: of these flags, just that one.
  if (words.takes("/")) return { match: { op: "==", left: { "&": [left, readRight(words)] }, right } };
  const isSet = typeof right === "object" && right !== null && "set" in right;
  return { match: { op: isOfFlags(left) && !isSet ? "in" : "==", left, right } };
}

/** Where a word on the right means that this flag is set, perhaps among others. */
function isOfFlags(left: unknown): boolean {
  const text = JSON.stringify(left);
  return text === '{"ct":{"key":"state"}}' || text === '{"ct":{"key":"status"}}' || text.includes('"field":"flags"');
}

function readLog(words: WordReader): unknown {
  const log: Record<string, unknown> = {};
  for (let word = words.peek(); word !== undefined; word = words.peek()) {
    if (!["prefix", "level", "group", "snaplen", "queue-threshold", "flags"].includes(word)) break;
    words.next();
    log[word] = unquoted(words.next());
    if (word === "flags" && /^(?:tcp|ip)$/.test(String(log[word]))) log[word] = `${log[word]} ${words.next()}`;
  }
  return Object.keys(log).length === 0 ? null : log;
}

function readLimit(words: WordReader): unknown {
  words.expect("rate");
  const inv = words.takes("over");
  const [rate, per] = words.next().split("/");
  // Of bytes, the unit stands between.
  if (per === undefined) throw new NftTextError("a limit of bytes is not understood");
  const burst = words.takes("burst") ? Number(words.next()) : undefined;
  if (burst !== undefined) words.takes("packets");
  return { rate: Number(rate), per, ...(burst === undefined ? {} : { burst }), ...(inv ? { inv } : {}) };
}

function readRefusal(words: WordReader): unknown {
  if (!words.takes("with")) return null;
  const type = words.next();
  if (type === "tcp") {
    words.expect("reset");
    return { type: "tcp reset" };
  }
  words.takes("type");
  return { type, expr: words.next() };
}

function readTranslation(words: WordReader): unknown {
  const found: Record<string, unknown> = {};
  const family = words.peek();
  if (family === "ip" || family === "ip6") {
    found.family = words.next();
    if (words.takes("prefix")) throw new NftTextError("a translation of prefixes is not understood");
  }
  if (words.takes("to")) Object.assign(found, readDestination(words));
  const flags: string[] = [];
  for (let word = words.peek(); word !== undefined; word = words.peek()) {
    for (const flag of word.split(",")) if (TRANSLATION_FLAGS.has(flag)) flags.push(flag);
    if (!word.split(",").every((flag) => TRANSLATION_FLAGS.has(flag))) break;
    words.next();
    words.takes(",");
  }
  if (flags.length > 0) found.flags = flags.length === 1 ? flags[0] : flags;
  return Object.keys(found).length === 0 ? null : found;
}

/** `10.0.0.1:80`, `[fd00::1]:80`, `:80`, an address, or an expression. */
function readDestination(words: WordReader): { readonly addr?: unknown; readonly port?: unknown } {
  const word = words.peek() ?? "";
  const [, bracketed, bare = "", digits = ""] = /^(?:\[([^\]]+)\]|([^:]*)):(\d+)$/.exec(word) ?? [];
  const address = bracketed ?? bare;
  if (digits !== "" && (address === "" || parseIpAddress(address) !== undefined)) {
    words.next();
    return { ...(address === "" ? {} : { addr: address }), port: Number(digits) };
  }
  return { addr: readExpression(words) };
}

/** `update @set { key timeout 10m : value }`: what a packet leaves for others. */
function readEntry(words: WordReader): unknown {
  const op = words.next();
  const set = words.next();
  if (!set.startsWith("@")) throw new NftTextError(`${op} ${set} is not understood`);
  words.expect("{");
  const elem = readExpression(words);
  for (const word of ["timeout", "expires"]) if (words.takes(word)) words.next();
  if (words.takes("counter")) skipCounter(words);
  const data = words.takes(":") ? readExpression(words) : undefined;
  words.expect("}");
  return data === undefined ? { set: { op, elem, set } } : { map: { op, elem, data, map: set } };
}
