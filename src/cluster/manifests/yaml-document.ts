/** The text of one YAML document → its values, and where in the file each of them stands. */
import { Composer, type Document, LineCounter, Parser } from "yaml";
import { messageOf } from "../../logging/message-of.ts";
import { brokenDocument, type ManifestDocument } from "./documents.ts";
import type { DocumentText } from "./split-documents.ts";

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
