/**
 * From a configuration file or kubeconfig to plain JSON values, as upstream's YAML reader sees them: YAML 1.1 booleans,
 * no base-60 numbers and no dates, the first document only, the last of duplicate keys. Reference configuration.md §3.1.
 */
import {
  type Document,
  isAlias,
  isCollection,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type ParsedNode,
  parseAllDocuments,
  type ScalarTag,
  type Tags,
} from "yaml";
import { messageOf } from "../logging/message-of.ts";
import { TextSyntaxError } from "./decode-text.ts";
import { quoteGo } from "./go-text.ts";

export type JsonValue = null | boolean | number | string | readonly JsonValue[] | { readonly [key: string]: JsonValue };

/** The values of a text, and the strict reader's errors about duplicate keys. */
export interface ConfigText {
  readonly root: JsonValue;
  readonly duplicates: readonly string[];
}

/** Types of YAML 1.1 that upstream's reader leaves as text. */
const UNREAD_TAGS: ReadonlySet<string> = new Set([
  "tag:yaml.org,2002:timestamp",
  "tag:yaml.org,2002:binary",
  "tag:yaml.org,2002:omap",
  "tag:yaml.org,2002:pairs",
  "tag:yaml.org,2002:set",
]);

/** The tags of what upstream's reader takes for something other than text. */
export const upstreamTags = (tags: Tags): Tags => [
  ...SCALAR_TAGS,
  ...tags.filter((tag) => typeof tag === "string" || !(UNREAD_TAGS.has(tag.tag) || isNumberTag(tag))),
];

/** Whether upstream reads these numbers in its own way; it reads only infinities and `.nan` as in YAML 1.1. */
function isNumberTag(tag: Exclude<Tags[number], string>): boolean {
  if (tag.format === "TIME" || tag.tag === "tag:yaml.org,2002:int") return true;
  return tag.tag === "tag:yaml.org,2002:float" && "test" in tag && tag.test?.test(".inf") === false;
}

/**
 * Reads a configuration text. A text that begins with `{` is JSON, anything else YAML.
 *
 * @throws {@link TextSyntaxError} when the text cannot be read.
 */
export function readConfigText(text: string): ConfigText {
  const isJson = text.trimStart().startsWith("{");
  if (isJson) requireJson(text);
  const lines = new LineCounter();
  // A tab is only white space in JSON (strings cannot hold a raw one), but YAML does not accept it as indentation.
  const documents = parseAllDocuments(isJson ? text.replaceAll("\t", " ") : text.replaceAll(/\r\n?|\u0085/g, "\n"), {
    version: "1.1",
    schema: "yaml-1.1",
    customTags: upstreamTags,
    uniqueKeys: false,
    prettyErrors: false,
    logLevel: "silent",
    lineCounter: lines,
  });
  const document = Array.isArray(documents) ? documents[0] : undefined;
  if (document === undefined) return { root: null, duplicates: [] };
  const problem = document.errors[0];
  if (problem !== undefined) {
    // Our own error about a value: upstream names no line for those.
    if (problem.message.startsWith("yaml: ")) throw new TextSyntaxError(problem.message);
    throw new TextSyntaxError(`yaml: line ${lines.linePos(problem.pos[0]).line}: ${problem.message}`);
  }
  const duplicates: string[] = [];
  const report: Report = (key, value) => duplicates.push(duplicateText(key, value, lines, isJson));
  checkNodes(document.contents, new Set(), report);
  return {
    root: toJsonValue(plainValue(document), !isJson),
    duplicates: groupYaml(duplicates, isJson),
  };
}

type Report = (key: string, value: unknown) => void;

/**
 * Rejects what has no counterpart in JSON: keys that are null or collections, and values that contain themselves. Reports each
 * duplicate key after the duplicates inside its value: the order of upstream's reader.
 */
function checkNodes(node: unknown, open: ReadonlySet<string>, report: Report): void {
  if (isAlias(node) && open.has(node.source)) {
    throw new TextSyntaxError(`yaml: anchor '${node.source}' value contains itself`);
  }
  if (!isCollection(node)) return;
  const within = node.anchor === undefined ? open : new Set([...open, node.anchor]);
  if (isSeq(node)) for (const item of node.items) checkNodes(item, within, report);
  if (!isMap(node)) return;
  const seen = new Set<unknown>();
  for (const pair of node.items) {
    checkKey(pair.key);
    checkNodes(pair.value, within, report);
    const key = isScalar(pair.key) ? pair.key.value : pair.key;
    if (seen.has(key)) report(String(key), pair.value ?? pair.key);
    seen.add(key);
  }
}

function checkKey(key: unknown): void {
  if (isCollection(key)) throw new TextSyntaxError(`yaml: invalid map key: ${key}`.trimEnd());
  if (!isScalar(key) ? !isAlias(key) : key.value === null) {
    throw new TextSyntaxError("unsupported map key of type: <nil>");
  }
}

function plainValue(document: Document.Parsed): unknown {
  try {
    return document.toJS({ maxAliasCount: 100 });
  } catch (error) {
    const reason = messageOf(error);
    const unknown = /^Unresolved alias.*: (.+)$/.exec(reason)?.[1];
    if (unknown !== undefined) throw new TextSyntaxError(`yaml: unknown anchor '${unknown}' referenced`);
    throw new TextSyntaxError(/alias count/.test(reason) ? "yaml: document contains excessive aliasing" : reason);
  }
}

function requireJson(text: string): void {
  try {
    JSON.parse(text);
  } catch (error) {
    const reason = messageOf(error);
    throw new TextSyntaxError(`couldn't get version/kind; json parse error: ${reason}`);
  }
}

function duplicateText(key: string, node: unknown, lines: LineCounter, isJson: boolean): string {
  if (isJson) return `duplicate field ${quoteGo(key)}`;
  const line = isParsedNode(node) ? lines.linePos(startOf(node)).line : 0;
  return `line ${line}: key ${quoteGo(key)} already set in map`;
}

function isParsedNode(node: unknown): node is ParsedNode {
  return (isScalar(node) || isCollection(node)) && Array.isArray(node.range);
}

/** The position of the first content of a node: a block map begins at its first key. */
function startOf(node: ParsedNode): number {
  const first = isMap(node) ? node.items[0]?.key : undefined;
  return isParsedNode(first) ? first.range[0] : node.range[0];
}

function groupYaml(duplicates: readonly string[], isJson: boolean): readonly string[] {
  if (isJson || duplicates.length === 0) return duplicates;
  return [`yaml: unmarshal errors:\n  ${duplicates.join("\n  ")}`];
}

/** Copies plain values; with `sorted` the keys come in byte order, the order in which upstream then decodes them. */
function toJsonValue(value: unknown, sorted: boolean): JsonValue {
  if (value === null || value === undefined) return null;
  if (typeof value === "string" || typeof value === "boolean") return value;
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new TextSyntaxError(`json: unsupported value: ${value}`);
    return value;
  }
  if (Array.isArray(value)) return value.map((item) => toJsonValue(item, sorted));
  if (typeof value !== "object") return String(value);
  const entries = Object.entries(value);
  if (sorted) entries.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return Object.fromEntries(entries.map(([key, item]) => [key, toJsonValue(item, sorted)]));
}

/** Go's integers in any base, with `_` anywhere after the first character. */
const INTEGER =
  /^(?:[-+]_*)?(?:0_*[xX]_*[0-9a-fA-F][0-9a-fA-F_]*|0_*[bB]_*[01][01_]*|0_*[oO]_*[0-7][0-7_]*|0[0-7_]*|[1-9][0-9_]*)$/;
const FLOAT = /^[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?$/;
const INT64_END = 2n ** 63n;
/** More than an int64 has in any base, with its prefix and some zeros. */
const MOST_DIGITS = 256;
/** The greatest double that is an int64. */
const GREATEST = 2 ** 63 - 1024;

/** Numbers and binary values. Upstream reads infinities as YAML 1.1 does. */
const SCALAR_TAGS: readonly ScalarTag[] = [
  { tag: "tag:yaml.org,2002:int", default: true, test: INTEGER, resolve: integerOf },
  { tag: "tag:yaml.org,2002:float", default: true, test: FLOAT, resolve: (text) => Number(text.replaceAll("_", "")) },
  { tag: "tag:yaml.org,2002:binary", resolve: textOfBase64 },
];

/** Only nanoseconds are ever that large; the lost last digits of 292 years do not matter, the limit does. */
function integerOf(text: string): number {
  const digits = text.replaceAll("_", "");
  const size = digits.replace(/^[-+]/, "");
  const literal = /^0[0-7]/.test(size) ? `0o${size}` : size;
  // Reading a long one as a BigInt would take time by the square of its length.
  const value = literal.length > MOST_DIGITS ? INT64_END : BigInt(literal);
  const isNegative = digits.startsWith("-");
  const number = value < INT64_END ? Math.min(Number(value), GREATEST) : Number(literal);
  return isNegative ? -number : number;
}

/** The bytes as UTF-8 text, as upstream's JSON passes them on. */
function textOfBase64(text: string): string {
  const digits = text.replaceAll(/[\r\n]/g, "");
  const isBase64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(digits);
  if (!isBase64) throw new TextSyntaxError("yaml: !!binary value contains invalid base64 data");
  return Buffer.from(digits, "base64").toString("utf8");
}
