/**
 * From the text of a configuration file to plain JSON values, as upstream's YAML reader sees them: YAML 1.1 booleans,
 * no base-60 numbers and no dates, the first document only, the last of two equal keys. Pure.
 * Reference configuration.md §3.1.
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
  type Tags,
} from "yaml";
import { messageOf } from "../logging/message-of.ts";
import { quoteGo } from "../text/go-text.ts";
import { ConfigSyntaxError } from "./config-bytes.ts";
import { SCALAR_TAGS } from "./yaml-scalars.ts";

export { ConfigSyntaxError } from "./config-bytes.ts";

/** A value as JSON has it. */
export type JsonValue = null | boolean | number | string | readonly JsonValue[] | { readonly [key: string]: JsonValue };

/** The values of a text, and what the strict reader has to say about equal keys. */
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

const upstreamTags = (tags: Tags): Tags => [
  ...SCALAR_TAGS,
  ...tags.filter((tag) => typeof tag === "string" || !(UNREAD_TAGS.has(tag.tag) || isNumberTag(tag))),
];

/** Of the numbers only infinities and `.nan` are read as YAML 1.1 has them. */
function isNumberTag(tag: Exclude<Tags[number], string>): boolean {
  if (tag.format === "TIME" || tag.tag === "tag:yaml.org,2002:int") return true;
  return tag.tag === "tag:yaml.org,2002:float" && "test" in tag && tag.test?.test(".inf") === false;
}

/**
 * Reads a configuration text. A text that begins with `{` is JSON, anything else YAML.
 *
 * @throws {@link ConfigSyntaxError} when the text cannot be read.
 */
export function readConfigText(text: string): ConfigText {
  const isJson = text.trimStart().startsWith("{");
  if (isJson) requireJson(text);
  const lines = new LineCounter();
  // A tab is only white space in JSON (strings cannot hold a raw one), but YAML does not take it for indentation.
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
    // Ours, of a value: upstream names no line for those.
    if (problem.message.startsWith("yaml: ")) throw new ConfigSyntaxError(problem.message);
    throw new ConfigSyntaxError(`yaml: line ${lines.linePos(problem.pos[0]).line}: ${problem.message}`);
  }
  checkNodes(document.contents, new Set());
  const duplicates: string[] = [];
  collectDuplicates(document.contents, (key, value) => duplicates.push(duplicateText(key, value, lines, isJson)));
  return {
    root: toJsonValue(plainValue(document), !isJson),
    duplicates: groupYaml(duplicates, isJson),
  };
}

/** Refuses what has no counterpart in JSON: keys that are no plain values, and values that contain themselves. */
function checkNodes(node: unknown, open: ReadonlySet<string>): void {
  if (isAlias(node) && open.has(node.source)) {
    throw new ConfigSyntaxError(`yaml: anchor '${node.source}' value contains itself`);
  }
  if (!isCollection(node)) return;
  const within = node.anchor === undefined ? open : new Set([...open, node.anchor]);
  if (isSeq(node)) for (const item of node.items) checkNodes(item, within);
  if (!isMap(node)) return;
  for (const { key, value } of node.items) {
    checkKey(key);
    checkNodes(value, within);
  }
}

function checkKey(key: unknown): void {
  if (isCollection(key)) throw new ConfigSyntaxError(`yaml: invalid map key: ${key}`.trimEnd());
  if (!isScalar(key) ? !isAlias(key) : key.value === null) {
    throw new ConfigSyntaxError("unsupported map key of type: <nil>");
  }
}

function plainValue(document: Document.Parsed): unknown {
  try {
    return document.toJS({ maxAliasCount: 100 });
  } catch (error) {
    const reason = messageOf(error);
    const unknown = /^Unresolved alias.*: (.+)$/.exec(reason)?.[1];
    if (unknown !== undefined) throw new ConfigSyntaxError(`yaml: unknown anchor '${unknown}' referenced`);
    throw new ConfigSyntaxError(/alias count/.test(reason) ? "yaml: document contains excessive aliasing" : reason);
  }
}

/** Reports each repeated key, after what is repeated inside its value: the order of upstream's reader. */
function collectDuplicates(node: unknown, report: (key: string, value: unknown) => void): void {
  if (isSeq(node)) for (const item of node.items) collectDuplicates(item, report);
  if (!isMap(node)) return;
  const seen = new Set<unknown>();
  for (const pair of node.items) {
    const key = isScalar(pair.key) ? pair.key.value : pair.key;
    collectDuplicates(pair.value, report);
    if (seen.has(key)) report(String(key), pair.value ?? pair.key);
    seen.add(key);
  }
}

function requireJson(text: string): void {
  try {
    JSON.parse(text);
  } catch (error) {
    const reason = messageOf(error);
    throw new ConfigSyntaxError(`couldn't get version/kind; json parse error: ${reason}`);
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

/** Where the first thing inside a node stands: a block map begins at its first key. */
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
    if (!Number.isFinite(value)) throw new ConfigSyntaxError(`json: unsupported value: ${value}`);
    return value;
  }
  if (Array.isArray(value)) return value.map((item) => toJsonValue(item, sorted));
  if (typeof value !== "object") return String(value);
  const entries = Object.entries(value);
  if (sorted) entries.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return Object.fromEntries(entries.map(([key, item]) => [key, toJsonValue(item, sorted)]));
}
