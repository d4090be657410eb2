/** What a document is, of whichever language, and the reading of JSON. YAML costs memory: `yaml-document.ts`. */
import { messageOf } from "../../logging/message-of.ts";

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
