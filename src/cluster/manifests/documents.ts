/** The text of one document → its values, and where in the file each of them stands. */
import { Composer, type Document, LineCounter, Parser } from "yaml";
import { messageOf } from "../../logging/message-of.ts";
import type { DocumentText } from "./split-documents.ts";

/** One document of a file. */
export interface ManifestDocument {
  /** Where it begins, counted from 1. */
  readonly line: number;
  /** Plain JSON; `null` for an empty document, the best guess for a broken one. */
  readonly raw: unknown;
  /** Why the document cannot be trusted; its line is `line`. */
  readonly error: string | undefined;
  /** The line of a field such as `spec.ports[0].port`, or of the nearest parent that is there. */
  lineOf(field: string): number;
}

/** Reads one document of a YAML file. Never throws: what cannot be read comes with an `error`. */
export function readYamlDocument({ text, line: firstLine }: DocumentText): ManifestDocument {
  const lines = new LineCounter();
  const lineAt = (offset: number): number => lines.linePos(offset).line + firstLine - 1;
  try {
    const [document, second] = compose(text, lines);
    if (document === undefined) return brokenDocument(firstLine, null, undefined);
    if (second !== undefined) return brokenDocument(lineAt(second.range[0]), null, "a document begins without `---`");
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
    // The parser is not meant to throw, but nesting can exhaust the stack.
    return brokenDocument(firstLine, null, messageOf(error));
  }
}

function compose(text: string, lines: LineCounter): readonly Document.Parsed[] {
  const composer = new Composer({ prettyErrors: false, logLevel: "error" });
  const documents: Document.Parsed[] = [];
  for (const token of new Parser(lines.addNewLine).parse(text)) documents.push(...composer.next(token));
  documents.push(...composer.end());
  return documents;
}

/** Reads a JSON file, which is one document. Never throws. */
export function readJsonDocument(text: string): ManifestDocument {
  const plain = text.startsWith("\uFEFF") ? text.slice(1) : text;
  if (plain.trim() === "") return brokenDocument(1, null, undefined);
  try {
    const raw: unknown = JSON.parse(plain);
    return { line: 1, raw, error: undefined, lineOf: () => 0 };
  } catch (error) {
    return brokenDocument(0, null, messageOf(error));
  }
}

/** A document of which nothing more is known. Pure. */
export function brokenDocument(line: number, raw: unknown, error: string | undefined): ManifestDocument {
  return { line, raw, error, lineOf: () => line };
}

/** Through JSON text, so that nothing but JSON values comes out and no string keeps the file's text in memory. */
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
