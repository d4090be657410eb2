/** The text of one file → the objects it defines, and everything that is wrong with it. */
import { guessObject } from "./document-guess.ts";
import { brokenDocument, readJsonDocument, readYamlDocument } from "./documents.ts";
import {
  addBrokenDocument,
  addDocument,
  type ManifestDraft,
  newDraft,
  type ParsedManifest,
} from "./manifest-objects.ts";
import { type DocumentText, splitDocuments } from "./split-documents.ts";

/** What the caller wants to know and decide while a file is parsed. */
export interface ParseHooks {
  /** Called before each document is parsed, with its place and its size in characters. */
  onDocument?(number: number, line: number, length: number): void;
  /** Why the document that begins in this line is not to be parsed. */
  refusal?(line: number, length: number): string | undefined;
  /** Takes Pods as well, and the names of pods in slices. @default false */
  readonly keepsPods?: boolean;
}

/** Parses one file. Never throws. `file` is only its name for problems; JSON is recognised by it. */
export function parseManifest(text: string, file: string, hooks: ParseHooks = {}): ParsedManifest {
  const draft = newDraft(hooks.keepsPods ?? false);
  const isJson = file.endsWith(".json");
  let number = 0;
  for (const piece of isJson ? [{ line: 1, text }] : splitDocuments(text)) {
    number++;
    const refusal = hooks.refusal?.(piece.line, piece.text.length);
    if (refusal !== undefined) {
      addBrokenDocument(draft, file, number, brokenDocument(piece.line, guessObject(piece.text), undefined), refusal);
      continue;
    }
    hooks.onDocument?.(number, piece.line, piece.text.length);
    addPiece(draft, file, number, piece, isJson);
  }
  return draft;
}

function addPiece(draft: ManifestDraft, file: string, number: number, piece: DocumentText, isJson: boolean): void {
  const document = isJson ? readJsonDocument(piece.text) : readYamlDocument(piece);
  if (document.error !== undefined) addBrokenDocument(draft, file, number, document, unparsable(document.error));
  else if (document.raw !== null) addDocument(draft, file, number, document);
}

/** Parsers quote the text around, line breaks included. */
function unparsable(error: string): string {
  return `cannot be parsed: ${error.replaceAll(/\s+/g, " ")}`;
}
