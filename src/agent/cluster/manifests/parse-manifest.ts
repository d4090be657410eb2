/** The text of one file → its objects and problems. */

import { Composer, type Document, isScalar, LineCounter, Parser, visit } from "yaml";
import type { Steps } from "../../../async/turns.ts";
import { messageOf } from "../../../logging/message-of.ts";
import { upstreamTags } from "../../../text/upstream-yaml.ts";
import { addBroken, addDocument, addUnparsed, finished, newDraft, type ParsedManifest } from "./manifest-objects.ts";

interface ParseOptions {
  /** The most characters of a document. @default no limit */
  readonly most?: number;
  /** Keeps Pods, and pod names in slices. @default false */
  readonly keepsPods?: boolean;
}

/** Parses the documents of a YAML file one by one. Never throws. */
export function* manifestSteps(text: string, file: string, options: ParseOptions): Steps<ParsedManifest> {
  const { most = Number.POSITIVE_INFINITY, keepsPods = false } = options;
  const draft = newDraft(file, keepsPods);
  let number = 0;
  for (const piece of splitDocuments(text.replaceAll(/\r\n?|\u0085/g, "\n"))) {
    number++;
    const { length } = piece.text;
    if (length > most) {
      const message = `is not parsed: it has ${length} characters, more than the limit of ${most}; split it with "---" lines`;
      addBroken(draft, number, piece.line, message);
      continue;
    }
    const document = readYamlDocument(piece);
    yield;
    const { line, raw, error } = document;
    if (error !== undefined) {
      addUnparsed(draft, number, line, error + hintFor(piece.text), raw);
    } else if (raw !== null) yield* addDocument(draft, number, document);
  }
  return finished(draft);
}

const HINTS: readonly (readonly [RegExp, string])[] = [
  [/\{\{/, "it looks like a template: render it first (helm template)"],
  [/^[$#>%] ?(?:sudo )?kubectl /m, "it has a command between its lines: remove it"],
  [/^[ \t-]*[\u00a0\u2000-\u200b\u202f\u3000]/mu, "it is indented with no-break spaces, as web pages have: use spaces"],
];

/** What is perhaps wrong with a document that cannot be parsed. */
function hintFor(text: string): string {
  const [, hint] = HINTS.find(([sign]) => sign.test(text)) ?? [];
  return hint === undefined ? "" : `; ${hint}`;
}

interface YamlDocument {
  /** The first line, or the line of the error; counted from 1. */
  readonly line: number;
  /** Plain JSON; `null` for an empty document, a best guess for a broken one. */
  readonly raw: unknown;
  /** Why the document is unusable. */
  readonly error?: string | undefined;
  lineOf(field: string): number;
}

/** Parses one document of a YAML file. Never throws: failures are in `error`. */
function readYamlDocument({ text, line: firstLine }: DocumentText): YamlDocument {
  const lines = new LineCounter();
  const lineAt = (offset: number): number => lines.linePos(offset).line + firstLine - 1;
  const without = (line: number, error?: string): YamlDocument => ({ line, raw: null, error, lineOf: () => line });
  try {
    const [document, second] = compose(text, lines);
    if (document === undefined) return without(firstLine);
    if (second !== undefined) return without(lineAt(second.range[0]), "a document begins without `---`");
    const start = document.contents?.range[0] ?? document.range[0];
    const [failure] = document.errors;
    const { raw, error } = toPlainJson(document);
    return {
      line: lineAt(failure?.pos[0] ?? start),
      raw,
      error: failure?.message ?? error,
      lineOf: (field) => lineAt(offsetOf(document, field) ?? start),
    };
  } catch (error) {
    // The parser should not throw, but deep nesting can exhaust the stack.
    return without(firstLine, messageOf(error));
  }
}

/** YAML as kubectl reads it. */
const KUBECTL_YAML = { version: "1.1", schema: "yaml-1.1", customTags: upstreamTags } as const;
/** Booleans of YAML 1.1. */
const WORD = /^(?:y|n|yes|no|on|off)$/i;
const HAS_WORD = /:[ \t]+(?:y|n|yes|no|on|off)\b/i;
/** The only booleans that are read. Elsewhere `y` is a text: kubectl refuses it where it has a meaning, as in names. */
const BOOLEANS: ReadonlySet<unknown> = new Set(["ready", "serving", "terminating"]);

function readWords(document: Document.Parsed): void {
  visit(document, {
    Pair(_, { key, value }) {
      if (!isScalar(value) || typeof value.value !== "boolean" || !WORD.test(value.source ?? "")) return;
      if (!(isScalar(key) && BOOLEANS.has(key.value))) value.value = value.source;
    },
  });
}

function compose(text: string, lines: LineCounter): readonly Document.Parsed[] {
  const composer = new Composer({ prettyErrors: false, logLevel: "error", ...KUBECTL_YAML });
  const documents: Document.Parsed[] = [];
  for (const token of new Parser(lines.addNewLine).parse(text)) documents.push(...composer.next(token));
  documents.push(...composer.end());
  if (HAS_WORD.test(text)) for (const document of documents) readWords(document);
  return documents;
}

/** Converts via JSON text, so that only JSON values come out and no string keeps the file's text in memory. */
function toPlainJson(document: Document.Parsed): { readonly raw: unknown; readonly error?: string } {
  try {
    const raw: unknown = JSON.parse(JSON.stringify(document.toJS()) ?? "null");
    return { raw };
  } catch (error) {
    return { raw: null, error: messageOf(error) };
  }
}

function offsetOf(document: Document.Parsed, field: string): number | undefined {
  const path = Array.from(field.matchAll(/\["([^"]*)"\]|\[(\d+)\]|([^.[\]]+)/g), ([, key, index, name]) =>
    index === undefined ? (key ?? name) : Number(index),
  );
  for (; path.length > 0; path.pop()) {
    const node: unknown = document.getIn(path, true);
    if (typeof node !== "object" || node === null || !("range" in node) || !Array.isArray(node.range)) continue;
    const offset: unknown = node.range[0];
    if (typeof offset === "number") return offset;
  }
  return undefined;
}

interface DocumentText {
  /** Its first line in the file, counted from 1. */
  readonly line: number;
  readonly text: string;
}

const MARKER = /^(?:---|\.\.\.)(?=[ \t\r\n]|$)/;
/** Neither content nor a marker: a directive before a document, a comment, or an empty line. */
const NO_CONTENT = /^(?:%.*|[ \t]*(?:#.*)?)\r?$/;

/**
 * Splits a stream at its document markers, which YAML forbids in scalars. Comments and directives belong to the
 * following document, or to the last one.
 */
export function* splitDocuments(stream: string): Generator<DocumentText> {
  let start = 0;
  let startLine = 1;
  let line = 1;
  /** `---` or content has been seen since `start`. */
  let isBegun = false;
  for (let at = 0; at < stream.length; line++) {
    const lineBreak = stream.indexOf("\n", at);
    const next = lineBreak < 0 ? stream.length : lineBreak + 1;
    // Checks the first character first, because lines may be megabytes long.
    const marker = stream[at] === "-" || stream[at] === "." ? MARKER.exec(stream.slice(at, at + 4))?.[0] : undefined;
    if (marker === "---" && isBegun) {
      yield { line: startLine, text: stream.slice(start, at) };
      [start, startLine] = [at, line];
    } else if (marker === "..." && isBegun) {
      yield { line: startLine, text: stream.slice(start, next) };
      [start, startLine] = [next, line + 1];
      isBegun = false;
    }
    if (marker === "---" || (marker === undefined && !isBegun && !isWithoutContent(stream, at, next))) isBegun = true;
    at = next;
  }
  if (isBegun) yield { line: startLine, text: stream.slice(start) };
}

function isWithoutContent(stream: string, start: number, end: number): boolean {
  const first = stream[start];
  if (first === "%" || first === "#") return true;
  return NO_CONTENT.test(stream.slice(start, Math.min(end, start + 1024)).replace(/\n$/, ""));
}
