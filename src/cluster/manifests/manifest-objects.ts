/** The objects that a file defines, and everything that is wrong with them. Knows nothing of YAML, which costs memory. */
import { runAtOnce, type Steps } from "../../async/steps.ts";
import type { PodRecord, ServiceNotes } from "../objects.ts";
import { formatProblem } from "../projection/findings.ts";
import type { ObjectEntry } from "../projection/object-entry.ts";
import { flattenLists, joinPath, projectObject } from "../projection/project-object.ts";
import type { ManifestDocument } from "./documents.ts";
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
  /** Of a Pod, which has no entries. */
  readonly pod?: PodRecord;
  /** Of a Service, where pods are kept. */
  readonly notes?: ServiceNotes;
}

export interface ParsedManifest {
  /** In the order of the file; the first definition of each. */
  readonly objects: ReadonlyMap<string, ManifestObject>;
  /** Objects that the file does define, but not well. */
  readonly refusedIds: ReadonlySet<string>;
  /** Some part could not even be told to be which object: anything else that the file defined before may be in there. */
  readonly isIncomplete: boolean;
  readonly problems: readonly ManifestProblem[];
  /** Titles of objects of other kinds. */
  readonly ignored: readonly string[];
}

/** A {@link ParsedManifest} in the making. */
export interface ManifestDraft {
  readonly objects: Map<string, ManifestObject>;
  readonly refusedIds: Set<string>;
  isIncomplete: boolean;
  readonly problems: ManifestProblem[];
  readonly ignored: string[];
  /** Pods are taken as well, and their names in slices. */
  readonly keepsPods: boolean;
}

/** The objects of documents that are already decoded. Pure. */
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
export function addBrokenDocument(
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
export function* addDocument(
  draft: ManifestDraft,
  file: string,
  number: number,
  document: ManifestDocument,
): Steps<void> {
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
