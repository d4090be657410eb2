/** The text of a JSON file → the objects it defines, and everything that is wrong with it. Knows nothing of YAML, which costs memory. */
import type { Steps } from "../../async/steps.ts";
import { messageOf } from "../../logging/message-of.ts";
import { brokenDocument, type ManifestDocument, readJsonDocument } from "./documents.ts";
import {
  addBrokenDocument,
  addDocument,
  type ManifestDraft,
  newDraft,
  type ParsedManifest,
} from "./manifest-objects.ts";

/** What the caller decides while a file is parsed. */
export interface ParseHooks {
  /** Why a document of so many characters is not to be parsed. */
  refusal?(length: number): string | undefined;
  /** Reads a document of so many characters. @throws Error when that takes too long @default without a limit */
  limited?<T>(length: number, work: () => T): T;
  /** Takes Pods as well, and the names of pods in slices. @default false */
  readonly keepsPods?: boolean;
}

/** Parses one file, which is one document. Never throws. */
export function* jsonSteps(text: string, file: string, hooks: ParseHooks = {}): Steps<ParsedManifest> {
  const draft = newDraft(hooks.keepsPods ?? false);
  yield* addPiece(draft, { file, number: 1, line: 1, text, hooks, read: () => readJsonDocument(text) });
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
export function* addPiece(
  draft: ManifestDraft,
  { file, number, line, text, hooks, read }: UnreadDocument,
): Steps<void> {
  const refuse = (reason: string) =>
    addBrokenDocument(draft, file, number, brokenDocument(line, null, undefined), reason);
  const refusal = hooks.refusal?.(text.length);
  if (refusal !== undefined) return refuse(refusal);
  let document: ManifestDocument;
  try {
    document = hooks.limited?.(text.length, read) ?? read();
  } catch (error) {
    return refuse(`is not used: ${messageOf(error)}`);
  }
  yield;
  if (document.error !== undefined) addBrokenDocument(draft, file, number, document, unparsable(document.error));
  else if (document.raw !== null) yield* addDocument(draft, file, number, document);
}

/** Parsers quote the text around, line breaks included. */
function unparsable(error: string): string {
  return `cannot be parsed: ${error.replaceAll(/\s+/g, " ")}`;
}
