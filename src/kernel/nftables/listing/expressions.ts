/** Expressions of nft's listings, as libnftables' JSON has them (libnftables-json(5)). */
import { listOf, named, textOf } from "../json.ts";
import { constantOf, OPERATORS, readCalculated, readElements, type ValueType } from "./constants.ts";
import { ListingError, type WordReader } from "./words.ts";

/** Keys that nft prints without the word `meta`; old ones print `mark` so, too. */
const BARE_META = new Set(["iif", "iifname", "oif", "oifname", "iifgroup", "oifgroup", "mark"]);
const HEADERS = new Set([
  ...["ip", "ip6", "tcp", "udp", "udplite", "sctp", "dccp", "th", "icmp", "icmpv6", "ether", "arp", "vlan"],
  ...["ah", "esp", "comp", "igmp", "gre", "gretap", "vxlan", "geneve"],
]);
const EXTENSIONS = new Set(["frag", "hbh", "dst", "mh", "srh"]);
const OPTIONS = new Set(["tcp option", "ip option", "sctp chunk", "dccp option"]);
const RAW = /^@(ll|nh|th|ih),(\d+),(\d+)$/;
const FIELD = /^[a-z][\w-]*(?:\[\d+\])?$/;
/** These follow an expression without a field. */
const NO_FIELD = new Set(["exists", "missing", "set", "map", "vmap"]);
const STARTS = new Set([
  "meta",
  "ct",
  "fib",
  "numgen",
  "jhash",
  "symhash",
  "socket",
  "rt",
  "osf",
  "ipsec",
  "exthdr",
  "(",
]);

/** Whether a word begins something that is read from the packet or the node. */
function beginsExpression(word: string): boolean {
  return [STARTS, HEADERS, BARE_META, EXTENSIONS].some((words) => words.has(word)) || RAW.test(word);
}

/** Parts of a concatenation, calculations, and what a map has for them. @throws ListingError */
export function readExpression(words: WordReader): unknown {
  const parts = [readCalculation(words)];
  while (words.takes(".")) parts.push(readCalculation(words));
  const key = parts.length === 1 ? parts[0] : { concat: parts };
  return words.takes("map") ? { map: { key, data: readTable(words, typesOf(key)) } } : key;
}

/** The elements of a map inside the rule, or the name of one. */
export function readTable(words: WordReader, types: readonly ValueType[]): unknown {
  return words.peek() === "{" ? { set: readElements(words, types) } : words.next();
}

function readCalculation(words: WordReader): unknown {
  let left = readPrimary(words);
  for (let sign = OPERATORS[words.peek() ?? ""]; sign !== undefined; sign = OPERATORS[words.peek() ?? ""]) {
    words.next();
    const next = words.peek() ?? "";
    left = { [sign]: [left, next !== "(" && beginsExpression(next) ? readPrimary(words) : operand(words)] };
  }
  return left;
}

function operand(words: WordReader): unknown {
  return words.peek() === "(" ? readCalculated(words) : constantOf(words.next());
}

function readPrimary(words: WordReader): unknown {
  const word = words.next();
  const field = words.peek() ?? "";
  if (word === "(") {
    const inner = readCalculation(words);
    words.expect(")");
    return inner;
  }
  if (BARE_META.has(word)) return { meta: { key: word } };
  const raw = RAW.exec(word);
  if (raw !== null) return { payload: { base: raw[1], offset: Number(raw[2]), len: Number(raw[3]) } };
  if (OPTIONS.has(`${word} ${field}`)) return readOption(words, `${word} ${words.next()}`);
  if (EXTENSIONS.has(word)) return { exthdr: withField(words, { name: word }) };
  if (HEADERS.has(word) && FIELD.test(field)) return readPayload(words, word);
  switch (word) {
    case "meta":
      return { meta: { key: words.next() } };
    case "ct":
      return readConnection(words);
    case "fib":
      return readFib(words);
    case "numgen":
    case "symhash":
      return readDraw(words, word);
    case "jhash": {
      const expr = readExpression(words);
      return readDraw(words, word, expr);
    }
    case "socket": {
      const key = words.next();
      return { socket: words.takes("level") ? { key, level: words.number() } : { key } };
    }
    case "rt":
      return readRoute(words);
    case "osf": {
      const ttl = words.takes("ttl") ? { ttl: words.next() } : {};
      return { osf: { key: words.next(), ...ttl } };
    }
    case "ipsec": {
      const dir = words.next();
      const spnum = words.takes("spnum") ? words.number() : 0;
      const family = words.takesOf(new Set(["ip", "ip6"]));
      return { ipsec: { ...(family !== undefined && { family }), key: words.next(), dir, spnum } };
    }
    case "exthdr":
      return { exthdr: { name: words.next() } };
    default:
      return constantOf(word);
  }
}

function withField(words: WordReader, head: object): object {
  const field = words.peek() ?? "";
  return FIELD.test(field) && !NO_FIELD.has(field) ? { ...head, field: words.next() } : head;
}

function readOption(words: WordReader, kind: string): unknown {
  const name = words.next();
  const [, base, offset, len] = /^@(\d+),(\d+),(\d+)$/.exec(name) ?? [];
  if (base !== undefined) return { [kind]: { base: Number(base), offset: Number(offset), len: Number(len) } };
  return { [kind]: withField(words, { name }) };
}

/** A header, or one inside a tunnel: `vxlan ip saddr`. */
function readPayload(words: WordReader, protocol: string): unknown {
  const field = words.next();
  const inner = words.peek() ?? "";
  if (HEADERS.has(field) && FIELD.test(inner) && /^(?:gre|vxlan|geneve)/.test(protocol)) {
    return { payload: { tunnel: protocol, protocol: field, field: words.next() } };
  }
  return { payload: { protocol, field } };
}

function readConnection(words: WordReader): unknown {
  const dir = words.takesOf(new Set(["original", "reply"]));
  const family = words.takesOf(new Set(["ip", "ip6"]));
  const key = family === undefined ? words.next() : `${family} ${words.next()}`;
  return { ct: { key, ...(dir !== undefined && { dir }) } };
}

function readFib(words: WordReader): unknown {
  const flags = [words.next()];
  while (words.takes(".")) flags.push(words.next());
  return { fib: { result: words.next(), flags } };
}

function readDraw(words: WordReader, kind: string, expr?: unknown): unknown {
  const mode = kind === "numgen" ? { mode: words.next() } : {};
  words.expect("mod");
  const mod = words.number();
  const seed = words.takes("seed") ? { seed: words.number() } : {};
  const offset = words.takes("offset") ? words.number() : undefined;
  const shift = offset === undefined ? (kind === "numgen" ? { offset: 0 } : {}) : { offset };
  return { [kind]: { ...mode, mod, ...seed, ...shift, ...(expr !== undefined && { expr }) } };
}

const ROUTE_KEYS = new Set(["classid", "nexthop", "mtu", "ipsec"]);

/** The route, or the routing header of IPv6. */
function readRoute(words: WordReader): unknown {
  const family = words.takesOf(new Set(["ip", "ip6"]));
  const key = words.next();
  if (!ROUTE_KEYS.has(key)) return { exthdr: { name: "rt", field: key } };
  return { rt: { key, ...(family !== undefined && { family }) } };
}

/** How constants that are compared with the expression are read, part by part. */
export function typesOf(expression: unknown): readonly ValueType[] {
  const { name, body, fields } = named(expression);
  if (name === "concat") return listOf(body).flatMap(typesOf);
  if (name !== "payload" && name !== "ct") return [undefined];
  const key = textOf(fields.field) ?? textOf(fields.key) ?? "";
  if (/^(?:[sd]port|proto-(?:src|dst))$/.test(key)) return ["port"];
  const isOfIp = name === "ct" || fields.protocol === "ip" || fields.protocol === "ip6";
  return [isOfIp && /[sd]addr$/.test(key) ? "address" : undefined];
}

/** Whether a flag on the right means that this flag is set, perhaps among others. */
export function hasFlags(expression: unknown): boolean {
  const { name, fields } = named(expression);
  if (name === "ct") return ["state", "status", "label", "event"].includes(textOf(fields.key) ?? "");
  return name === "payload" && fields.field === "flags";
}

/** @throws ListingError if it is a bare constant, such as a misread word. */
export function readLeft(words: WordReader): unknown {
  const word = words.peek() ?? "";
  if (!beginsExpression(word)) throw new ListingError(`"${word}" is not understood`);
  return readExpression(words);
}
