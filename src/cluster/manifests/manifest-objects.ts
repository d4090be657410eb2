/** The objects that a file defines, and everything that is wrong with them. Knows nothing of YAML, which costs memory. */
import { runAtOnce, type Steps } from "../../async/steps.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { PodRecord, ServiceNotes } from "../objects.ts";
import { formatProblem } from "../projection/findings.ts";
import type { ObjectEntry } from "../projection/object-entry.ts";
import { flattenLists, joinPath, projectObject } from "../projection/project-object.ts";
import type { ManifestProblem } from "./problem.ts";

/** One good object and where it is defined. */
export interface ManifestObject {
  /** Kind, namespace and name. */
  readonly id: string;
  readonly title: string;
  readonly file: string;
  readonly document: number;
  readonly line: number;
  /** Empty for an object that the proxy's watches would not show. */
  readonly entries: readonly ObjectEntry[];
  /** The entries were made from an Endpoints object. */
  readonly isMirrored: boolean;
  /** Set for a Pod, which has no entries. */
  readonly pod?: PodRecord;
  /** Set for a Service, where pods are kept. */
  readonly notes?: ServiceNotes;
}

export interface ParsedManifest {
  /** In the order of the file; the first definition of each. */
  readonly objects: ReadonlyMap<string, ManifestObject>;
  /** Objects that the file does define, but not well. */
  readonly refusedIds: ReadonlySet<string>;
  /** Some part could not be identified: it may be any object that the file defined before. */
  readonly isIncomplete: boolean;
  readonly problems: readonly ManifestProblem[];
  /** Titles of objects of other kinds. */
  readonly ignored: readonly string[];
}

/** A {@link ParsedManifest} in the making. */
interface ManifestDraft {
  readonly objects: Map<string, ManifestObject>;
  readonly refusedIds: Set<string>;
  isIncomplete: boolean;
  readonly problems: ManifestProblem[];
  readonly ignored: string[];
  /** Pods are taken as well, and their names in slices. */
  readonly keepsPods: boolean;
}

export function parseDecoded(documents: readonly unknown[], file: string, keepsPods: boolean): ParsedManifest {
  const draft = newDraft(keepsPods);
  for (const [index, raw] of documents.entries()) {
    runAtOnce(addDocument(draft, file, index + 1, { line: 0, raw, error: undefined, lineOf: () => 0 }));
  }
  return draft;
}

/** Nothing yet. */
export function newDraft(keepsPods: boolean): ManifestDraft {
  return { objects: new Map(), refusedIds: new Set(), isIncomplete: false, problems: [], ignored: [], keepsPods };
}

/** Notes a document that cannot be used, named after what `raw` seems to be. */
function addBrokenDocument(
  draft: ManifestDraft,
  file: string,
  number: number,
  { raw, line }: ManifestDocument,
  message: string,
): void {
  draft.isIncomplete = true;
  const guess = projectObject(raw);
  const object = guess.title === "document" ? "" : guess.title;
  draft.problems.push({ severity: "error", file, document: number, line, object, field: "", message });
}

/** Takes the objects of a document over, and notes what is wrong with them. */
function* addDocument(draft: ManifestDraft, file: string, number: number, document: ManifestDocument): Steps<void> {
  for (const { raw, path, typeMeta } of flattenLists(document.raw)) {
    yield;
    const projected = projectObject(raw, typeMeta, draft.keepsPods);
    const place = { file, document: number, object: projected.title };
    if (projected.status === "ignored") {
      draft.ignored.push(projected.title);
      continue;
    }
    const isRefused = projected.status === "refused";
    for (const problem of isRefused ? projected.problems : projected.warnings) {
      const field = joinPath(path, problem.field);
      const severity = isRefused ? "error" : "warning";
      const message = formatProblem({ ...problem, field });
      draft.problems.push({ ...place, severity, line: document.lineOf(field), field, message });
    }
    const { id } = projected;
    if (isRefused) {
      if (id === undefined) draft.isIncomplete = true;
      else draft.refusedIds.add(id);
      continue;
    }
    const { title, entries, isMirrored, pod, notes } = projected;
    const line = path === "" ? document.line : document.lineOf(path);
    const object: ManifestObject = {
      ...{ id: projected.id, title, file, document: number, line, entries, isMirrored },
      ...(pod !== undefined && { pod }),
      ...(notes !== undefined && { notes }),
    };
    const first = draft.objects.get(object.id);
    if (first === undefined) draft.objects.set(object.id, object);
    else draft.problems.push(duplicateProblem(object, first));
  }
}

/** Reports that `second` is not used because `first` defines the same object. Pure. */
export function duplicateProblem(second: ManifestObject, first: ManifestObject): ManifestProblem {
  const { file, document, line, title } = second;
  const where = first.file === file ? `line ${first.line} of this file` : `${first.file}, document ${first.document}`;
  const message = `is defined twice: the one in ${where} is used; remove one of them`;
  return { severity: "error", file, document, line, object: title, field: "", message };
}

/** What the caller decides while a file is parsed. */
export interface ParseHooks {
  /** Reads a document of so many characters. @throws Error why it is not used, as a predicate @default without a limit */
  guarded?<T>(length: number, work: () => T): T;
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
interface UnreadDocument {
  readonly file: string;
  /** Counted from 1. */
  readonly number: number;
  readonly line: number;
  readonly text: string;
  readonly hooks: ParseHooks;
  read(): ManifestDocument;
}

/** Reads a document, unless it is refused, and takes its objects over. */
export function* addPiece(draft: ManifestDraft, unread: UnreadDocument): Steps<void> {
  const { file, number, line, text, hooks, read } = unread;
  let document: ManifestDocument;
  try {
    document = hooks.guarded?.(text.length, read) ?? read();
  } catch (error) {
    return addBrokenDocument(draft, file, number, brokenDocument(line, null, undefined), messageOf(error));
  }
  yield;
  if (document.error !== undefined) {
    // Parsers quote the text around, line breaks included.
    const reason = `cannot be parsed: ${document.error.replaceAll(/\s+/g, " ")}`;
    addBrokenDocument(draft, file, number, document, reason);
  } else if (document.raw !== null) yield* addDocument(draft, file, number, document);
}

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
function readJsonDocument(text: string): ManifestDocument {
  const plain = text.startsWith("\uFEFF") ? text.slice(1) : text;
  if (plain.trim() === "") return brokenDocument(1, null, undefined);
  try {
    const raw: unknown = JSON.parse(plain);
    return { line: 1, raw, error: undefined, lineOf: () => 0 };
  } catch (error) {
    return brokenDocument(0, null, messageOf(error));
  }
}

/** A document without more to say about it. Pure. */
export function brokenDocument(line: number, raw: unknown, error: string | undefined): ManifestDocument {
  return { line, raw, error, lineOf: () => line };
}
