/** Constants in nft's listings, as libnftables' JSON has them, and the elements of sets and maps. */
import { parseIpAddress } from "../../../net/ip.ts";
import { readRate } from "./rates.ts";
import { ListingError, unquoted, type WordReader } from "./words.ts";

/** What a part of a key is, if that decides how its constants are read. */
export type ValueType = "port" | "address" | undefined;

/** Ports that nft before 0.9, and any nft with `-S`, prints as words (services(5)). */
const PORTS: Readonly<Record<string, number>> = {
  ...{ "ftp-data": 20, ftp: 21, ssh: 22, telnet: 23, smtp: 25, domain: 53, bootps: 67, bootpc: 68, tftp: 69 },
  ...{ http: 80, kerberos: 88, pop3: 110, sunrpc: 111, ntp: 123, "netbios-ns": 137, "netbios-dgm": 138 },
  ...{ "netbios-ssn": 139, imap2: 143, snmp: 161, "snmp-trap": 162, bgp: 179, ldap: 389, https: 443 },
  ...{ "microsoft-ds": 445, submissions: 465, isakmp: 500, syslog: 514, submission: 587, ldaps: 636, imaps: 993 },
  ...{ pop3s: 995, openvpn: 1194, "ms-sql-s": 1433, nfs: 2049, mysql: 3306, "ms-wbt-server": 3389, sip: 5060 },
  ...{ postgresql: 5432, mdns: 5353, amqp: 5672, redis: 6379, "http-alt": 8080, "ipsec-nat-t": 4500 },
};

const NUMBER = /^(?:\d+|0x[\da-f]+)$/i;
/** These begin expressions; a listing never has them in place of a constant. */
const NO_CONSTANT = /^(?:[{}();@#]|meta$|ct$|fib$|numgen$|jhash$|symhash$|socket$)/;

/** A constant in one word: a number, a name, an address, a prefix, a range or a list of flags. @throws ListingError */
export function constantOf(word: string, type?: ValueType): unknown {
  if (word.startsWith('"')) {
    const ends = /^"([^"]*)"-"([^"]*)"$/.exec(word);
    return ends === null ? unquoted(word) : { range: ends.slice(1) };
  }
  if (NO_CONSTANT.test(word)) throw new ListingError(`"${word}" is not understood here`);
  if (NUMBER.test(word)) return Number(word);
  if (word === "*") return word;
  if (word === "exists" || word === "missing") return word === "exists";
  const slash = word.lastIndexOf("/");
  if (slash > 0 && parseIpAddress(word.slice(0, slash)) !== undefined) {
    return { prefix: { addr: word.slice(0, slash), len: Number(word.slice(slash + 1)) } };
  }
  const dash = word.indexOf("-", 1);
  const ends = dash > 0 ? [word.slice(0, dash), word.slice(dash + 1)] : [];
  if (ends.length > 0 && ends.every((end) => NUMBER.test(end) || parseIpAddress(end) !== undefined)) {
    return { range: ends.map((end) => constantOf(end)) };
  }
  if (type === "port") return portOf(word);
  if (type === "address" && parseIpAddress(word) === undefined) throw new ListingError(`"${word}" is not an address`);
  return word.includes(",") ? word.split(",").map((one) => constantOf(one, type)) : word;
}

/** @throws ListingError for a name that is not known here. */
export function portOf(word: string): number {
  const port = NUMBER.test(word) ? Number(word) : PORTS[word];
  if (port === undefined) throw new ListingError(`the port "${word}" is not known`);
  return port;
}

export const OPERATORS: Readonly<Record<string, string>> = {
  ...{ "&": "&", "|": "|", "^": "^", "<<": "<<", ">>": ">>" },
  ...{ and: "&", or: "|", xor: "^", lshift: "<<", rshift: ">>" },
};

/** The right side of a comparison. @param types of the parts on the left @throws ListingError */
export function readRight(words: WordReader, types: readonly ValueType[]): unknown {
  const word = words.peek() ?? "";
  if (/^@[^,]+$/.test(word)) return words.next();
  return word === "{" ? { set: readElements(words, types) } : readConstants(words, types);
}

function readConstants(words: WordReader, types: readonly ValueType[]): unknown {
  const parts = [readCalculated(words, types[0])];
  while (words.takes(".")) parts.push(readCalculated(words, types[parts.length]));
  return parts.length === 1 ? parts[0] : { concat: parts };
}

/** A constant, or constants joined as bits: `syn | ack`, `(syn | ack)`. */
export function readCalculated(words: WordReader, type?: ValueType): unknown {
  const isBracketed = words.takes("(");
  let value = constantOf(words.next(), type);
  for (let sign = OPERATORS[words.peek() ?? ""]; sign !== undefined; sign = OPERATORS[words.peek() ?? ""]) {
    words.next();
    value = { [sign]: [value, constantOf(words.next())] };
  }
  if (isBracketed) words.expect(")");
  return value;
}

/** `{ … }` of a set or map. What is not understood is an element `{ opaque: text }`. @throws ListingError */
export function readElements(words: WordReader, types: readonly ValueType[]): unknown[] {
  words.expect("{");
  const elements: unknown[] = [];
  while (!words.takes("}")) {
    elements.push(readElement(words, types));
    if (words.peek() !== "}") words.expect(",");
  }
  return elements;
}

function readElement(words: WordReader, types: readonly ValueType[]): unknown {
  const val = readConstants(words, types);
  const { more, stmt } = readBeside(words);
  const element = elementWith(val, Object.assign(more, ...stmt));
  return words.takes(":") ? [element, readData(words)] : element;
}

/** What stands beside the key of an element, and its statements. */
export function readBeside(words: WordReader) {
  const more: Record<string, unknown> = {};
  const stmt: object[] = [];
  for (;;) {
    if (words.takes("comment")) more.comment = unquoted(words.next());
    else if (words.takes("timeout")) more.timeout = secondsOf(words.next());
    else if (words.takes("expires")) more.expires = secondsOf(words.next());
    else {
      const rate = readRate(words);
      if (rate === undefined) return { more, stmt };
      stmt.push(rate);
    }
  }
}

export function elementWith(val: unknown, more: object): unknown {
  return Object.keys(more).length === 0 ? val : { elem: { val, ...more } };
}

const VERDICTS = new Set(["accept", "drop", "return", "continue"]);

function readData(words: WordReader): unknown {
  const verdict = words.takesOf(VERDICTS);
  if (verdict !== undefined) return { [verdict]: null };
  const way = words.takesOf(new Set(["jump", "goto"]));
  return way === undefined ? readConstants(words, []) : { [way]: { target: unquoted(words.next()) } };
}

const SECONDS: Readonly<Record<string, number>> = { d: 86_400, h: 3_600, m: 60, s: 1, ms: 0.001 };

/** `1d2h3m4s`, `900ms` in whole seconds. */
export function secondsOf(text: string): number {
  const parts = [...text.matchAll(/(\d+)(ms|[dhms])/g)];
  return Math.floor(parts.reduce((sum, [, count, unit = ""]) => sum + Number(count) * (SECONDS[unit] ?? 0), 0));
}
