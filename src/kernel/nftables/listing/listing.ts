/**
 * What `nft list ruleset` prints, with or without `-a` and `-s`, of any release, as the objects of `nft -j list ruleset`. Beside
 * these, rules have their `text`, and chains and sets the `lines` at their beginning, as nft prints them.
 */
import { attempt } from "../../../logging/attempt.ts";
import { isObject, listOf, named } from "../json.ts";
import { PRIORITIES } from "../json-text.ts";
import { readElements, secondsOf, type ValueType } from "./constants.ts";
import { readRate } from "./rates.ts";
import { readRule } from "./statements.ts";
import { ListingError, unquoted, WordReader } from "./words.ts";

export interface Listing {
  readonly objects: readonly unknown[];
  /** What is not there or not understood, outside of rules and elements, each with its line. */
  readonly gaps: readonly string[];
  /** Tables of iptables-nft by nft's own warning, as `family name`. */
  readonly ofIptables: ReadonlySet<string>;
}

/** Whether nft printed a text. Other lines may precede, such as a prompt. */
export const isListing = (text: string): boolean => TABLE_LINE.test(text);
const FAMILIES = "ip|ip6|inet|arp|bridge|netdev";
const TABLE_LINE = new RegExp(`^[ \\t]*table (?:${FAMILIES}) \\S+ \\{`, "m");

const TABLE = new RegExp(`^table (${FAMILIES}) (\\S+) \\{`);
const KINDS =
  "chain|set|map|meter|flowtable|counter|quota|limit|secmark|synproxy|tunnel|ct helper|ct timeout|ct expectation";
const BLOCK = new RegExp(`^(${KINDS}) (\\S+) \\{(?:\\s*\\})?$`);
const OF_IPTABLES = /^# Warning: table (\S+) (\S+) is managed by iptables-nft/;
/** A shell's prompt, with or without a command, and the fence of a code block. */
export const AROUND = /^(?:\S*[#$>%]|\[[^\]]*\]\S*)(?: |$)|^\S*(?:[:@~]\S*)?[#$%] |\bnft\b.* list\b|^```|^~~~/;

interface Block {
  readonly kind: string;
  readonly body: Record<string, unknown>;
  readonly lines: string[];
  readonly rules: unknown[];
}

/** Reads a listing. A part that is not understood or not there never hides the rest. */
export function readListing(text: string): Listing {
  const reader = new ListingReader();
  const lines = text.split("\n");
  for (const [index, line] of lines.entries()) reader.line(line, index + 1);
  return reader.finish(lines.length, text.endsWith("\n"));
}

class ListingReader {
  readonly #objects: unknown[] = [];
  readonly #gaps: string[] = [];
  readonly #ofIptables = new Set<string>();
  #table: Record<string, unknown> | undefined;
  #block: Block | undefined;
  /** Of the line's object, where the listing has them. */
  #handle: { readonly handle?: number } = {};
  /** Lines whose braces are still open, and the number of the first. */
  #open: { readonly lines: string[]; readonly first: number; depth: number } | undefined;

  line(raw: string, number: number): void {
    // `nft -a` prints a handle behind each object.
    const [end, handle] = / ?# handle (\d+)$/.exec(raw.trim()) ?? [""];
    this.#handle = handle === undefined ? {} : { handle: Number(handle) };
    const line = raw
      .trim()
      .slice(0, end.length === 0 ? undefined : -end.length)
      .replace(/\{ # .*$/, "{");
    const [, family, name] = OF_IPTABLES.exec(line) ?? [];
    if (family !== undefined) this.#ofIptables.add(`${family} ${name}`);
    if (line === "" || (line.startsWith("#") && !line.startsWith("# xt_"))) return;
    const table = TABLE.exec(line);
    const block = BLOCK.exec(line);
    if (table !== null) this.#openTable(table, line, number);
    else if (block !== null && this.#table !== undefined) this.#openBlock(block, line, number);
    else if (this.#open !== undefined) this.#content(line, number);
    else if (this.#block !== undefined && line === "}") this.#closeBlock();
    else if (this.#block !== undefined) this.#content(line, number);
    else this.#between(line, number);
  }

  finish(lines: number, isWhole: boolean): Listing {
    if (this.#table !== undefined || this.#block !== undefined) this.#cut(lines, "the listing ends", !isWhole);
    const tables = iptablesTables(this.#objects, this.#ofIptables);
    const objects = this.#objects.map((object) => withoutMisprints(object, tables));
    return { objects, gaps: this.#gaps, ofIptables: this.#ofIptables };
  }

  /** Outside of blocks: attributes of a table, its end, and what is no listing. */
  #between(line: string, number: number): void {
    const table = this.#table;
    if (table === undefined) {
      if (line !== "}" && !AROUND.test(line)) this.#gap(number, `${quoted(line)} is outside of a table`);
    } else if (line === "}") this.#table = undefined;
    else if (line.startsWith("flags ")) table.flags = flagsIn(line.slice(6));
    else if (line.startsWith("comment ")) table.comment = unquoted(line.slice(8));
    else this.#gap(number, `${quoted(line)} is not understood, and something may be missing there`);
  }

  #openTable([start, family, name = ""]: RegExpExecArray, line: string, number: number): void {
    if (this.#table !== undefined) this.#cut(number, "another table begins", false);
    const table = { family, name: unquoted(name) };
    this.#objects.push({ table });
    if (!/^(?:\}|#.*)?$/.test(line.slice(start.length).trim()))
      this.#gap(
        number,
        `${quoted(line)} is not as nft lists a table, one statement in a line: the rest of it is not read`,
      );
    this.#table = line.endsWith("}") ? undefined : table;
  }

  #openBlock([, kind = "", name = ""]: RegExpExecArray, line: string, number: number): void {
    if (this.#block !== undefined) this.#cutBlock(number, `the ${kind} ${name} begins`, false);
    const { family, name: table } = this.#table ?? {};
    const body = { family, table, name: unquoted(name), ...this.#handle };
    this.#block = { kind, body, lines: [], rules: [] };
    if (kind === "chain" || kind === "set" || kind === "map") this.#objects.push({ [kind]: body });
    if (line.endsWith("}")) this.#closeBlock();
  }

  #closeBlock(): void {
    const { kind, body, lines, rules } = this.#block ?? { kind: "", body: {}, lines: [], rules: [] };
    if (kind === "chain" || kind === "set" || kind === "map") body.lines = lines;
    else this.#objects.push({ [kind]: { ...body, lines } });
    this.#objects.push(...rules);
    this.#block = undefined;
  }

  #content(line: string, number: number): void {
    this.#open ??= { lines: [], first: number, depth: 0 };
    const { lines, first } = this.#open;
    lines.push(line);
    this.#open.depth += bracesIn(line);
    if (this.#open.depth > 0) return;
    this.#open = undefined;
    const text = lines.join(" ");
    this.#complete(text, first);
    const { kind, body = {} } = this.#block ?? {};
    const isOfSet = kind === "set" || kind === "map";
    // A chain whose hook is not known looks like one that nothing calls.
    const isUnread = isOfSet
      ? !SET_LINE.test(text)
      : kind === "chain" && text.startsWith("type ") && body.hook === undefined;
    const hasOpenQuote = text.split('"').length % 2 === 0;
    if (isUnread || hasOpenQuote)
      this.#gap(first, `${quoted(text)} is not understood, and something may be missing there`);
  }

  #complete(text: string, line: number): void {
    const block = this.#block;
    if (block === undefined) return;
    if (block.kind === "chain") addToChain(block, text, line, this.#handle);
    else if (block.kind === "set" || block.kind === "map") addToSet(block, text, line);
    else block.lines.push(spelled(text));
  }

  #cut(line: number, why: string, isInLine: boolean): void {
    if (this.#block !== undefined) this.#cutBlock(line, why, isInLine, true);
    else this.#gap(line, `${why}, but the table ${tableName(this.#table)} does not end: it is cut there`);
  }

  /** What is there of the block counts; what a cut line says does not. @param isInLine whether the last line may lack its end */
  #cutBlock(line: number, why: string, isInLine: boolean, ofTable = false): void {
    const { kind = "", body = {}, rules = [] } = this.#block ?? {};
    const what = `the ${kind} ${body.name}${ofTable ? ` of the table ${tableName(this.#table)}` : ""}`;
    this.#gap(line, `${why}, but ${what} does not end: it is cut there`);
    const open = this.#open?.lines.join(" ") ?? "";
    this.#open = undefined;
    const rest = { opaque: `line ${line}: the rest of ${what}` };
    if (kind === "chain") {
      if (isInLine) rules.pop();
      rules.push(ruleOf(body, { text: "…", expr: [rest] }));
    } else if (kind === "set" || kind === "map") {
      // The last element may have lost a part.
      const [, known] = /^(elements = \{.*),/.exec(open) ?? [];
      if (known !== undefined) this.#complete(`elements = {${known.slice("elements = {".length)} }`, line);
      body.elem = [...elementsIn(body), rest];
    }
    this.#closeBlock();
  }

  #gap(line: number, what: string): void {
    this.#gaps.push(`line ${line}: ${what}`);
  }
}

const tableName = (table: Readonly<Record<string, unknown>> | undefined) => `${table?.family} ${table?.name}`;
const elementsIn = ({ elem }: Readonly<Record<string, unknown>>): readonly unknown[] =>
  Array.isArray(elem) ? elem : [];
const quoted = (line: string) => JSON.stringify(line.length > 60 ? `${line.slice(0, 60)}…` : line);

/** How many braces are open, without those in quotes. */
function bracesIn(text: string): number {
  if (!/[{}]/.test(text)) return 0;
  const bare = text.replaceAll(/"[^"]*"/g, "");
  return bare.split("{").length - bare.split("}").length;
}

/** As plans have it: without the values of counters. */
function spelled(line: string): string {
  return line
    .replaceAll(/\s+/g, " ")
    .replaceAll(/ ?counter packets \d+ bytes \d+/g, "")
    .trim();
}

function flagsIn(text: string): string[] {
  return text.split(/[,\s]+/).filter((flag) => flag !== "");
}

const HOOK =
  /^type (\S+) hook (\S+) (?:devices? (?:= )?(\{[^}]*\}|\S+) )?priority ([^;]+);(?: policy (\w+);)?(?: flags (\w+);)?$/;
const BRIDGE_PRIORITIES = { dstnat: -300, filter: -200, out: 100, srcnat: 300 };

function priorityOf(text: string, family: unknown): number | undefined {
  const [, word = "", sign, digits = "0"] = /^(\S+?)(?: ?([+-]) ?(\d+))?$/.exec(text.trim()) ?? [];
  const names: Readonly<Record<string, number>> = family === "bridge" ? BRIDGE_PRIORITIES : PRIORITIES;
  const base = names[word] ?? Number(word);
  return Number.isNaN(base) ? undefined : base + (sign === "-" ? -1 : 1) * Number(digits);
}

function ruleOf({ family, table, name }: Readonly<Record<string, unknown>>, rule: object): unknown {
  return { rule: { family, table, chain: name, ...rule } };
}

function addToChain({ body, lines, rules }: Block, text: string, line: number, handle: object): void {
  const [, type, hook, device, priority = "", policy] = HOOK.exec(text) ?? [];
  const prio = priorityOf(priority, body.family);
  if (type !== undefined && prio !== undefined) {
    Object.assign(body, { type, hook, prio, ...(policy !== undefined && { policy }) });
    if (device !== undefined) body.dev = device.startsWith("{") ? device : unquoted(device);
    lines.push(spelled(text));
  } else if (/^comment "[^"]*"$/.test(text)) lines.push(text);
  else rules.push(ruleOf(body, { ...handle, text: spelled(text), ...readRule(new WordReader(text), line) }));
}

/** Types that say how constants are read. */
const VALUE_TYPES: Readonly<Record<string, ValueType>> = {
  ...{ inet_service: "port", ipv4_addr: "address", ipv6_addr: "address" },
};
const SET_LINE =
  /^(?:type|typeof|flags|comment|timeout|gc-interval|elements|size|policy|auto-merge|counter|quota|limit|last|ct)\b/;
/** What `typeof` has in the place of types. */
const TYPES_OF: readonly (readonly [RegExp, string])[] = [
  [/^(?:ip protocol|ip6 nexthdr|meta l4proto|ct (?:\w+ )?protocol)$/, "inet_proto"],
  [/[sd]port$|proto-(?:src|dst)$/, "inet_service"],
  [/^(?:ip|ct \w+ ip) [sd]addr$/, "ipv4_addr"],
  [/^(?:ip6|ct \w+ ip6) [sd]addr$/, "ipv6_addr"],
];

function addToSet({ kind, body, lines }: Block, text: string, line: number): void {
  const [, word = "", value = ""] = /^(\S+)(?: (?:= )?(.*))?$/.exec(text) ?? [];
  if (word !== "elements") lines.push(spelled(text));
  switch (word) {
    case "type":
    case "typeof": {
      const [keys = "", data] = kind === "map" ? value.split(" : ") : [value];
      const types = keys.split(" . ").map((one) => TYPES_OF.find(([sign]) => sign.test(one))?.[1] ?? one);
      body.type = types.length === 1 ? types[0] : types;
      if (data !== undefined) body.map = data;
      return;
    }
    case "flags":
      body.flags = flagsIn(value);
      return;
    case "comment":
      body.comment = unquoted(value);
      return;
    case "timeout":
    case "gc-interval":
      body[word] = secondsOf(value);
      return;
    case "limit":
    case "quota":
    case "ct":
      body.stmt = [attempt(() => readRate(new WordReader(text)), ListingError) ?? { limit: text }];
      return;
    case "elements":
      body.elem = readableElements(value, body, line);
  }
}

function readableElements(text: string, { type }: Readonly<Record<string, unknown>>, line: number): unknown[] {
  const types = [type].flat().map((name) => VALUE_TYPES[String(name)]);
  try {
    return readElements(new WordReader(text), types);
  } catch (error) {
    if (!(error instanceof ListingError)) throw error;
    return membersOf(text).map((member) => {
      try {
        return readElements(new WordReader(`{ ${member} }`), types)[0];
      } catch {
        return { opaque: `line ${line}: ${member}` };
      }
    });
  }
}

/** The elements one by one: an error in one does not hide the others. A comma in quotes belongs to a comment. */
function membersOf(text: string): string[] {
  const list = text.replace(/^\{\s*/, "").replace(/\s*\}$/, "");
  return (list.match(/(?:"[^"]*"|[^",]|,(?=\S))+/g) ?? []).map((member) => member.trim()).filter((one) => one !== "");
}

/** Tables that iptables-nft made, as `family name`: by nft's warning, its expressions, or the names of its own base chains. */
export function iptablesTables(
  objects: readonly unknown[],
  warned: ReadonlySet<string> = new Set(),
): ReadonlySet<string> {
  const found = new Set(warned);
  for (const object of objects) {
    if (!isObject(object)) continue;
    const { chain, rule } = object;
    if (isObject(chain) && chain.hook !== undefined && isOfIptables(chain)) found.add(`${chain.family} ${chain.table}`);
    if (isObject(rule) && Array.isArray(rule.expr) && rule.expr.some((one) => isObject(one) && one.xt !== undefined)) {
      found.add(`${rule.family} ${rule.table}`);
    }
  }
  return found;
}

/**
 * As a text, nft prints iptables' matches and targets by libxtables' translations, and some of these are false. They become what
 * nft prints in JSON: the name.
 */
function withoutMisprints(object: unknown, tables: ReadonlySet<string>): unknown {
  const rule = isObject(object) ? object.rule : undefined;
  if (!isObject(rule) || !tables.has(`${rule.family} ${rule.table}`)) return object;
  const expr = listOf(rule.expr).map((one) => {
    const { match, mangle } = isObject(one) ? one : {};
    const left = isObject(match) ? named(match.left).name : undefined;
    if (mangle === undefined && left !== "ct" && left !== "concat") return one;
    const json = JSON.stringify(one);
    const misprint = MISPRINTS.find(({ as }) => as.test(json));
    return misprint === undefined ? one : { xt: misprint.xt };
  });
  return { rule: { ...rule, expr } };
}

const MARK_SET = (of: string) => `\\{"mangle":\\{"key":\\{"${of}":\\{"key":"mark"\\}\\},"value":`;
/** What stands for more than it says (iptables 1.8.9), by test/property/iptables-as-nft.test.ts. */
const MISPRINTS = [
  // Also `! --ctstate DNAT` and `--ctstate NEW,DNAT`.
  { as: /^\{"match":\{"op":"\W*(?:in)?","left":\{"ct":\{"key":"status"\}/, xt: { type: "match", name: "conntrack" } },
  // Also `! --ports`.
  {
    as: /^\{"match":\{"op":"\W+","left":\{"concat":\[\{"payload":\{"protocol":"\w+","field":"sport"\}\},/,
    xt: { type: "match", name: "multiport" },
  },
  // `--restore-mark` and `--save-mark` without the mask of what stays, `--set-xmark` with its value and its mask exchanged.
  {
    as: new RegExp(`^${MARK_SET("meta")}\\{"&":\\[\\{"ct"|^${MARK_SET("ct")}\\{"&":\\[\\{"(?:meta|\\^)"`),
    xt: { type: "target", name: "CONNMARK" },
  },
];

function isOfIptables({ family, table, name }: Readonly<Record<string, unknown>>): boolean {
  const isTable = /^(?:raw|mangle|nat|filter|security)$/.test(String(table)) && /^ip6?$/.test(String(family));
  return isTable && /^(?:PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING)$/.test(String(name));
}
