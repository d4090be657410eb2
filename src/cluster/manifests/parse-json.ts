/** The text of a JSON file → the objects it defines, and everything that is wrong with it. Knows nothing of YAML, which costs memory. */
import { guessObject } from "./document-guess.ts";
import { brokenDocument, type ManifestDocument, readJsonDocument } from "./documents.ts";
import {
  addBrokenDocument,
  addDocument,
  type ManifestDraft,
  newDraft,
  type ParsedManifest,
} from "./manifest-objects.ts";

/** What the caller wants to know and decide while a file is parsed. */
export interface ParseHooks {
  /** Called before each document is parsed, with its place and its size in characters. */
  onDocument?(number: number, line: number, length: number): void;
  /** Why the document that begins in this line is not to be parsed. */
  refusal?(line: number, length: number): string | undefined;
  /** Takes Pods as well, and the names of pods in slices. @default false */
  readonly keepsPods?: boolean;
}

/** Parses one file, which is one document. Never throws. */
export function parseJson(text: string, file: string, hooks: ParseHooks = {}): ParsedManifest {
  const draft = newDraft(hooks.keepsPods ?? false);
  addPiece(draft, { file, number: 1, line: 1, text, hooks, read: () => readJsonDocument(text) });
  return draft;
}

/** A document that has not been read yet. */
export interface UnreadDocument {
  readonly file: string;
  /** Counted from 1. */
  readonly number: number;
  readonly line: number;
  readonly text: string;
  readonly hooks: ParseHooks;
  read(): ManifestDocument;
}

/** Reads a document, unless it is refused, and takes its objects over. */
export function addPiece(draft: ManifestDraft, { file, number, line, text, hooks, read }: UnreadDocument): void {
  const refusal = hooks.refusal?.(line, text.length);
  if (refusal !== undefined) {
    addBrokenDocument(draft, file, number, brokenDocument(line, guessObject(text), undefined), refusal);
    return;
  }
  hooks.onDocument?.(number, line, text.length);
  const document = read();
  if (document.error !== undefined) addBrokenDocument(draft, file, number, document, unparsable(document.error));
  else if (document.raw !== null) addDocument(draft, file, number, document);
}

/** Parsers quote the text around, line breaks included. */
function unparsable(error: string): string {
  return `cannot be parsed: ${error.replaceAll(/\s+/g, " ")}`;
}
