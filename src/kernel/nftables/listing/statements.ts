/** Statements of nft's listings, as libnftables' JSON has them (libnftables-json(5)). */
import { parseIpAddress } from "../../../net/ip.ts";
import { constantOf, elementWith, portOf, readBeside, readRight } from "./constants.ts";
import { hasFlags, readExpression, readLeft, readTable, typesOf } from "./expressions.ts";
import { RATES } from "./rates.ts";
import { ListingError, unquoted, type WordReader } from "./words.ts";

/** Reads the statements of a rule. What is not understood is `{ opaque: text }`, to the end. @param line its number, for that text */
export function readRule(words: WordReader, line: number): { readonly expr: readonly unknown[]; comment?: string } {
  const expr: unknown[] = [];
  while (!words.isAtEnd) {
    // A listing may be cut behind the word.
    if (words.takes("comment")) return words.isAtEnd ? { expr } : { expr, comment: unquoted(words.next()) };
    const start = words.position;
    try {
      const statement = readStatement(words);
      if (statement === undefined) break;
      expr.push(statement);
    } catch (error) {
      if (!(error instanceof ListingError)) throw error;
      expr.push({ opaque: `line ${line}: ${words.restFrom(start)}` });
    }
  }
  return { expr };
}

/** Reads what follows the word that the statement begins with. */
type Reader = (words: WordReader, word: string) => unknown;

const each = (words: string, read: Reader) => Object.fromEntries(words.split(" ").map((word) => [word, read]));

/** By the word that they begin with. */
const READERS: Readonly<Record<string, Reader>> = {
  ...each("accept drop return continue notrack", (_words, verdict) => ({ [verdict]: null })),
  ...each("jump goto", (words, verdict) => ({ [verdict]: { target: unquoted(words.next()) } })),
  counter: (words) => readNamed(words, "counter", RATES.counter),
  limit: (words) => readNamed(words, "limit", RATES.limit),
  quota: (words) => readNamed(words, "quota", RATES.quota),
  last: (words) => ({ last: RATES.last(words) }),
  synproxy: (words) => readNamed(words, "synproxy", readSynproxy),
  log: readLog,
  reject: readRefusal,
  ...each("masquerade redirect dnat snat tproxy", (words, kind) => ({ [kind]: readTranslation(words) })),
  queue: readQueue,
  ...each("dup fwd", readCopy),
  ...each("add update delete", readEntry),
  meter: readMeter,
  flow: readFlow,
  reset: (words) => ({ reset: readExpression(words) }),
  xt: (words) => ({ xt: { type: words.next(), name: unquoted(words.next()) } }),
  "#": readRemark,
};

/** @returns undefined if only a remark follows. @throws ListingError */
function readStatement(words: WordReader): unknown {
  const reader = READERS[words.peek() ?? ""];
  return reader === undefined ? readCondition(words) : reader(words, words.next());
}

/** nft without iptables' libraries prints `# xt_comment` in the place of a match or target of iptables. */
function readRemark(words: WordReader): unknown {
  const [, name] = /^xt_(\w+)$/.exec(words.peek() ?? "") ?? [];
  if (name === undefined) {
    words.restFrom(words.position);
    return undefined;
  }
  words.next();
  return { xt: { type: name === name.toLowerCase() ? "match" : "target", name } };
}

const COMPARISONS = new Set(["==", "!=", "!", "<", ">", "<=", ">="]);
const OBJECTS = /^\{"ct":\{"key":"(helper|timeout|expectation)"\}\}$/;

/** A comparison, a verdict map, or a value that is set. */
function readCondition(words: WordReader): unknown {
  const left = readLeft(words);
  if (JSON.stringify(left) === '{"ct":{"key":"count"}}') {
    return { "ct count": RATES["ct count"](words) };
  }
  const types = typesOf(left);
  if (words.takes("vmap")) return { vmap: { key: left, data: readTable(words, types) } };
  if (words.takes("set")) {
    const [, object] = OBJECTS.exec(JSON.stringify(left)) ?? [];
    const value = readExpression(words);
    return object === undefined ? { mangle: { key: left, value } } : { [`ct ${object}`]: value };
  }
  const sign = words.takesOf(COMPARISONS);
  const right = readRight(words, types);
  if (sign !== undefined && !words.takes("/")) return { match: { op: sign, left, right } };
  // `tcp flags syn / syn,ack`: of these flags, only syn is set.
  if (sign !== undefined || words.takes("/")) {
    return { match: { op: sign ?? "==", left: { "&": [left, readRight(words, types)] }, right } };
  }
  const isSet = typeof right === "object" && right !== null && "set" in right;
  const isNamed = typeof right === "string" && right.startsWith("@");
  return { match: { op: hasFlags(left) && !isSet && !isNamed ? "in" : "==", left, right } };
}

/** A statement whose state is its own, or that of a named object. */
function readNamed(words: WordReader, kind: string, readOwn: (words: WordReader) => unknown): unknown {
  if (!words.takes("name")) return { [kind]: readOwn(words) };
  return { [kind]: readExpression(words) };
}

function readSynproxy(words: WordReader): unknown {
  const found: Record<string, unknown> = {};
  const flags: string[] = [];
  for (;;) {
    const key = words.takesOf(new Set(["mss", "wscale"]));
    const flag = words.takesOf(new Set(["timestamp", "sack-perm"]));
    if (key !== undefined) found[key] = words.number();
    if (flag !== undefined) flags.push(flag);
    if (key === undefined && flag === undefined) break;
  }
  return { ...found, ...(flags.length > 0 && { flags }) };
}

const LOG_KEYS = new Set(["prefix", "level", "group", "snaplen", "queue-threshold"]);

function readLog(words: WordReader): unknown {
  const log: Record<string, unknown> = {};
  const flags: string[] = [];
  for (;;) {
    const key = words.takesOf(LOG_KEYS);
    if (key !== undefined) log[key] = constantOf(words.next());
    else if (words.takes("flags")) {
      const kind = words.takesOf(new Set(["tcp", "ip"]));
      const listed = words.next().split(",");
      flags.push(...(kind === undefined ? listed : listed.map((flag) => `${kind} ${flag}`)));
    } else break;
  }
  if (flags.length > 0) log.flags = flags.length === 1 ? flags[0] : flags;
  return { log: Object.keys(log).length === 0 ? null : log };
}

function readRefusal(words: WordReader): unknown {
  if (!words.takes("with")) return { reject: null };
  const type = words.next();
  if (type === "tcp") {
    words.expect("reset");
    return { reject: { type: "tcp reset" } };
  }
  words.takes("type");
  return { reject: { type, expr: constantOf(words.next()) } };
}

const TRANSLATION_FLAG = /^(?:random|fully-random|persistent|netmap)(?:,|$)/;

function readTranslation(words: WordReader): unknown {
  const found: Record<string, unknown> = {};
  const family = words.takesOf(new Set(["ip", "ip6"]));
  if (family !== undefined) found.family = family;
  const type = words.takesOf(new Set(["prefix", "interval"]));
  if (type !== undefined) found.type_flags = type;
  // nft 0.9.4 to 0.9.8: `dnat ip addr . port to …`.
  if (words.takes("addr")) for (const word of [".", "port"]) words.expect(word);
  if (words.takes("to")) Object.assign(found, readDestination(words));
  const flags: string[] = [];
  while (TRANSLATION_FLAG.test(words.peek() ?? "")) {
    flags.push(...words.next().split(","));
    words.takes(",");
  }
  if (type === "prefix" && !flags.includes("netmap")) flags.push("netmap");
  if (flags.length > 0) found.flags = flags.length === 1 ? flags[0] : flags;
  return Object.keys(found).length === 0 ? null : found;
}

/** `10.0.0.1:80`, `[fd00::1]:80-90`, `:80`, an address, an expression; behind `:` a port or an expression. */
function readDestination(words: WordReader): object {
  const word = words.peek() ?? "";
  const [, bracketed, bare = "", rest] = /^(?:(\[[^\]]+\](?:-\[[^\]]+\])?)|([^:]*)):([^:]*)$/.exec(word) ?? [];
  const host = bracketed?.replaceAll(/[[\]]/g, "") ?? bare;
  const [first = ""] = host.split(/[-/]/);
  if (rest !== undefined && (host === "" || parseIpAddress(first) !== undefined)) {
    words.next();
    return { ...(host !== "" && { addr: constantOf(host) }), port: portBehind(words, rest) };
  }
  const addr = word.startsWith("[") ? constantOf(words.next().replaceAll(/[[\]]/g, "")) : readExpression(words);
  const behind = /^:(.*)$/.exec(words.peek() ?? "");
  if (behind === null) return { addr };
  words.next();
  return { addr, port: portBehind(words, behind[1] ?? "") };
}

const HEADER = /^(?:tcp|udp|th|sctp|dccp|numgen|jhash|symhash|meta|ct)$/;

/** @param start what follows the colon without a blank: a number, a range, a name, or the first word of an expression. */
function portBehind(words: WordReader, start: string): unknown {
  if (start === "") return readExpression(words);
  if (!HEADER.test(start)) return /^\d+-\d+$/.test(start) ? constantOf(start) : portOf(start);
  words.unread(start);
  return readExpression(words);
}

function readQueue(words: WordReader): unknown {
  const flags: string[] = [];
  const readFlags = () => flags.push(...words.next().split(","));
  if (words.takes("flags")) readFlags();
  const num = words.takes("num") || words.takes("to") ? { num: readExpression(words) } : {};
  // Before nft 1.0, flags follow the number.
  while (/^(?:bypass|fanout)/.test(words.peek() ?? "")) readFlags();
  return { queue: { ...num, ...(flags.length > 0 && { flags: flags.length === 1 ? flags[0] : flags }) } };
}

function readCopy(words: WordReader, kind: string): unknown {
  const family = words.takesOf(new Set(["ip", "ip6"]));
  words.expect("to");
  const addr = readExpression(words);
  const dev = words.takes("device") ? { dev: readExpression(words) } : {};
  if (kind === "dup") return { dup: { addr, ...dev } };
  return { fwd: family === undefined ? { dev: addr } : { ...dev, family, addr } };
}

function readFlow(words: WordReader): unknown {
  const op = words.next();
  return { flow: { op, flowtable: words.next() } };
}

/** `ip saddr timeout 10m limit rate 5/second : value`, what a packet writes into a set. */
function readWritten(words: WordReader) {
  words.expect("{");
  const key = readExpression(words);
  const { more, stmt } = readBeside(words);
  const data = words.takes(":") ? readExpression(words) : undefined;
  words.expect("}");
  return { elem: elementWith(key, more), stmt, data };
}

function readEntry(words: WordReader, op: string): unknown {
  const set = words.next();
  if (!set.startsWith("@")) throw new ListingError(`"${set}" is not a set`);
  const { elem, stmt, data } = readWritten(words);
  const more = stmt.length > 0 ? { stmt } : {};
  return data === undefined ? { set: { op, elem, set, ...more } } : { map: { op, elem, data, map: set, ...more } };
}

function readMeter(words: WordReader): unknown {
  const name = words.next();
  const size = words.takes("size") ? { size: words.number() } : {};
  const { elem, stmt } = readWritten(words);
  return { meter: { key: elem, stmt: stmt[0], ...size, name } };
}
