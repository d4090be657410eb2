/**
 * The text of a manifest → its documents. YAML is read document by document, with a pause for the event loop now and
 * then, because a folder of thousands of objects takes seconds to parse.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import { Composer, type Document, LineCounter, Parser } from "yaml";

/** One document of a file. */
export interface ManifestDocument {
  /** Counted from 1. */
  readonly number: number;
  /** Where it begins, counted from 1. */
  readonly line: number;
  /** Plain JSON; `null` for an empty document, the best guess for a broken one. */
  readonly raw: unknown;
  /** Why the document cannot be trusted; its line is `line`. */
  readonly error: string | undefined;
  /** The line of a field such as `spec.ports[0].port`, or of the nearest parent that is there. */
  lineOf(field: string): number;
}

/** How long to parse before other work gets its turn. */
const SLICE_MS = 15;

/** Reads the documents of a file. Never throws: what cannot be read comes as a document with an `error`. */
export async function* readDocuments(text: string, isJson: boolean): AsyncGenerator<ManifestDocument> {
  if (isJson) {
    yield readJson(text);
    return;
  }
  const lines = new LineCounter();
  let number = 0;
  let sliceStart = performance.now();
  for (const document of composeDocuments(text, lines)) {
    yield document instanceof Error ? brokenStream(++number, document) : readYaml(++number, document, lines);
    if (performance.now() - sliceStart > SLICE_MS) {
      await nextTurn();
      sliceStart = performance.now();
    }
  }
}

/** The parser is not meant to throw, but nesting can exhaust the stack: that ends the file with an error. */
function* composeDocuments(text: string, lines: LineCounter): Generator<Document.Parsed | Error> {
  const composer = new Composer({ prettyErrors: false, logLevel: "error" });
  try {
    for (const token of new Parser(lines.addNewLine).parse(text)) yield* composer.next(token);
    yield* composer.end();
  } catch (error) {
    yield error instanceof Error ? error : new Error(String(error));
  }
}

function readYaml(number: number, document: Document.Parsed, lines: LineCounter): ManifestDocument {
  const start = document.contents?.range[0] ?? document.range[0];
  const [failure] = document.errors;
  const { raw, error } = toPlainJson(document);
  return {
    number,
    line: lines.linePos(failure?.pos[0] ?? start).line,
    raw,
    error: failure?.message ?? error,
    lineOf: (field) => lines.linePos(offsetOf(document, field) ?? start).line,
  };
}

/** Through JSON text, so that nothing but JSON values comes out and no string keeps the file's text in memory. */
function toPlainJson(document: Document.Parsed): { readonly raw: unknown; readonly error?: string } {
  try {
    const raw: unknown = JSON.parse(JSON.stringify(document.toJS()) ?? "null");
    return { raw };
  } catch (error) {
    return { raw: null, error: error instanceof Error ? error.message : String(error) };
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

function readJson(text: string): ManifestDocument {
  const plain = text.startsWith("\uFEFF") ? text.slice(1) : text;
  const document = { number: 1, line: 1, raw: null, error: undefined, lineOf: () => 0 };
  if (plain.trim() === "") return document;
  try {
    const raw: unknown = JSON.parse(plain);
    return { ...document, raw };
  } catch (error) {
    return { ...document, line: 0, error: error instanceof Error ? error.message : String(error) };
  }
}

function brokenStream(number: number, error: Error): ManifestDocument {
  return { number, line: 0, raw: null, error: error.message, lineOf: () => 0 };
}
