/** The objects that a file defines, and their problems. Does not import the YAML parser, which costs memory. */
import { runAtOnce, type Steps } from "../../../async/turns.ts";
import { jsonIn } from "../../../logging/attempt.ts";
import { messageOf } from "../../../logging/message-of.ts";
import type { ManifestProblem } from "../../../model/manifest-problem.ts";
import type { PodRecord, ServiceNotes } from "../../../model/objects.ts";
import { isJsonObject } from "../../../model/projection/fields.ts";
import { formatProblem, joinPath } from "../../../model/projection/findings.ts";
import { flattenLists, type KindRecord, projectObject } from "../../../model/projection/project-object.ts";

/** A valid object and where it is defined. */
export interface ManifestObject {
  /** Kind, namespace and name. */
  readonly id: string;
  readonly title: string;
  readonly file: string;
  readonly document: number;
  readonly line: number;
  /** Undefined for an object that the proxy's watches would exclude. */
  readonly found: KindRecord | undefined;
  /** Set for a Pod, which has no record. */
  readonly pod?: PodRecord;
  /** Set for a Service if pods are kept. */
  readonly notes?: ServiceNotes;
}

export interface ParsedManifest {
  /** The first definition of each object, in file order. */
  readonly objects: ReadonlyMap<string, ManifestObject>;
  /** Objects that the file defines, but not validly. */
  readonly refusedIds: ReadonlySet<string>;
  /** Some part could not be identified: it may be any object that the file defined previously. */
  readonly isIncomplete: boolean;
  readonly problems: readonly ManifestProblem[];
  /** Titles of objects of other kinds. */
  readonly ignored: readonly string[];
}

/** A {@link ParsedManifest} under construction. */
interface ManifestDraft {
  readonly file: string;
  readonly objects: Map<string, ManifestObject>;
  readonly refusedIds: Set<string>;
  isIncomplete: boolean;
  readonly problems: ManifestProblem[];
  /** Include problems that are not listed. */
  readonly counts: Record<ManifestProblem["severity"], number>;
  readonly ignored: string[];
  /** What to say of its first Endpoints object. */
  endpoints?: ManifestProblem;
  /** Keeps Pods, and pod names in slices. */
  readonly keepsPods: boolean;
}

/** The most errors, and the most warnings, that are listed for one file: a hostile file has millions. */
const MAX_PROBLEMS = 1_000;
/** The most values of a JSON file. A 64 MiB dump of a cluster has about five million; parsing blocks the event loop. */
const MAX_JSON_VALUES = 8_000_000;

export function newDraft(file: string, keepsPods: boolean): ManifestDraft {
  return {
    file,
    keepsPods,
    objects: new Map(),
    refusedIds: new Set(),
    isIncomplete: false,
    problems: [],
    counts: { error: 0, warning: 0 },
    ignored: [],
  };
}

interface ManifestDocument {
  /** Its first line, counted from 1; 0 if unknown. */
  readonly line: number;
  readonly raw: unknown;
  /** The line of a field such as `spec.ports[0].port`, or of its nearest existing parent. */
  lineOf(field: string): number;
}

/** Treats each decoded value as a document. */
export function parseDecoded(documents: readonly unknown[], file: string, keepsPods: boolean): ParsedManifest {
  const draft = newDraft(file, keepsPods);
  for (const [index, raw] of documents.entries()) {
    runAtOnce(addDocument(draft, index + 1, { line: 0, raw, lineOf: () => 0 }));
  }
  return finished(draft);
}

/** Whether to read a text as JSON first: by the name of its file, or by its start. */
export const looksLikeJson = (text: string, file: string): boolean =>
  file.endsWith(".json") || /^\uFEFF?\s*[[{]/.test(text);

/**
 * Parses a JSON file: one value, or several one after the other, each a document. Never throws.
 *
 * @returns undefined for a text that is probably YAML
 */
export function* jsonSteps(text: string, file: string, keepsPods: boolean): Steps<ParsedManifest | undefined> {
  const draft = newDraft(file, keepsPods);
  const plain = text.startsWith("\uFEFF") ? text.slice(1) : text;
  if (plain.trim() === "") return draft;
  if (mayExceedValues(plain)) {
    addBroken(draft, 1, 0, `is not parsed: it has more than ${MAX_JSON_VALUES} values; split it`);
    return draft;
  }
  const whole = jsonIn(plain);
  const values = whole === undefined ? [...jsonValues(plain)] : [{ line: 0, text: plain }];
  for (const [index, { line, text }] of values.entries()) {
    let raw = whole;
    try {
      raw ??= JSON.parse(text);
    } catch (error) {
      if (!file.endsWith(".json") && (index === 0 || /^---/m.test(plain))) return undefined;
      addUnparsed(draft, index + 1, values.length === 1 ? 0 : line, messageOf(error));
      continue;
    }
    yield;
    if (raw !== null) yield* addDocument(draft, index + 1, { line: line || 1, raw, lineOf: () => line });
  }
  return finished(draft);
}

/** Ends a file. Endpoints objects are named only where no EndpointSlice is: dumps of a cluster have both. */
export function finished(draft: ManifestDraft): ParsedManifest {
  const { endpoints, objects } = draft;
  if (endpoints !== undefined && ![...objects.keys()].some((id) => id.startsWith("EndpointSlice/")))
    note(draft, endpoints);
  return draft;
}

/** White space, and lines that separate documents of YAML. */
const BETWEEN_VALUES = /(?:\s|^---[ \t]*$)*/my;

/** Splits a text at the ends of its JSON values. What is no object or list ends with the text. */
function* jsonValues(text: string): Generator<{ readonly line: number; readonly text: string }> {
  for (let at = 0, line = 1; ; ) {
    BETWEEN_VALUES.lastIndex = at;
    const start = at + (BETWEEN_VALUES.exec(text)?.[0].length ?? 0);
    if (start >= text.length) return;
    line += lineBreaks(text, at, start);
    at = endOfValue(text, start);
    yield { line, text: text.slice(start, at) };
    line += lineBreaks(text, start, at);
  }
}

function lineBreaks(text: string, start: number, end: number): number {
  let count = 0;
  for (let at = start; at < end; at++) if (text.charCodeAt(at) === 0x0a) count++;
  return count;
}

function endOfValue(text: string, start: number): number {
  if (!"{[".includes(text.charAt(start))) return text.length;
  let isString = false;
  for (let at = start, depth = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === 0x22) isString = !isString;
    else if (isString) at += code === 0x5c ? 1 : 0;
    else if (code === 0x5b || code === 0x7b) depth++;
    else if ((code === 0x5d || code === 0x7d) && --depth === 0) return at + 1;
  }
  return text.length;
}

/** Counts what stands before values, also within strings: `[`, `{` and `,`. */
function mayExceedValues(text: string): boolean {
  if (text.length <= MAX_JSON_VALUES) return false;
  let count = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === 0x2c || code === 0x5b || code === 0x7b) count++;
  }
  return count > MAX_JSON_VALUES;
}

/** Records an unusable document. @param raw the best guess at its content. */
export function addBroken(draft: ManifestDraft, number: number, line: number, message: string, raw?: unknown): void {
  draft.isIncomplete = true;
  const { title } = projectObject(raw);
  const object = title === "document" ? "" : title;
  note(draft, { severity: "error", file: draft.file, document: number, line, object, field: "", message });
}

function note(draft: ManifestDraft, problem: ManifestProblem): void {
  const { severity } = problem;
  const count = ++draft.counts[severity];
  if (count <= MAX_PROBLEMS) draft.problems.push(problem);
  if (count !== MAX_PROBLEMS + 1) return;
  const message = `has more than ${MAX_PROBLEMS} ${severity}s; the others are not listed`;
  draft.problems.push({ ...problem, document: 0, line: 0, object: "", field: "", message });
}

/** Records a malformed document. @param reason the parser's message, which may quote text with line breaks. */
export function addUnparsed(draft: ManifestDraft, number: number, line: number, reason: string, raw?: unknown): void {
  addBroken(draft, number, line, `cannot be parsed: ${reason.replaceAll(/\s+/g, " ")}`, raw);
}

/** Adds the objects of a document and their problems. */
export function* addDocument(draft: ManifestDraft, number: number, document: ManifestDocument): Steps<void> {
  const { file, keepsPods } = draft;
  const event = watchEvent(document.raw);
  for (const { raw, path, typeMeta } of flattenLists(event?.object ?? document.raw, event && "object")) {
    yield;
    const projected = projectObject(raw, typeMeta, keepsPods);
    if (event !== undefined && "id" in projected && projected.id !== undefined) {
      draft.objects.delete(projected.id);
      draft.refusedIds.delete(projected.id);
      if (event.type === "DELETED") continue;
    }
    const place = { file, document: number, object: projected.title };
    if (projected.status === "ignored") {
      draft.ignored.push(projected.title);
      if (typeMeta?.apiVersion === "v1" && /^Endpoints?(List)?$/.test(typeMeta.kind))
        draft.endpoints ??= {
          ...{ ...place, severity: "error", line: document.lineOf(path), field: path },
          message: "is not read: give its EndpointSlices (kubectl get endpointslices)",
        };
      continue;
    }
    const isRefused = projected.status === "refused";
    for (const problem of isRefused ? projected.problems : projected.warnings) {
      const field = joinPath(path, problem.field);
      const severity = isRefused ? "error" : "warning";
      const message = formatProblem({ ...problem, field });
      note(draft, { ...place, severity, line: document.lineOf(field), field, message });
    }
    if (isRefused) {
      if (projected.id === undefined) draft.isIncomplete = true;
      else draft.refusedIds.add(projected.id);
      continue;
    }
    const { status: _, warnings: __, ...accepted } = projected;
    const line = path === "" ? document.line : document.lineOf(path);
    const object: ManifestObject = { ...accepted, file, document: number, line };
    const first = draft.objects.get(object.id);
    if (first === undefined) draft.objects.set(object.id, object);
    else note(draft, duplicateProblem(object, first));
  }
}

/** One event, as `kubectl get -w --output-watch-events -o json` prints it: it replaces what is known of its object. */
function watchEvent(raw: unknown): { readonly type: string; readonly object: unknown } | undefined {
  if (!isJsonObject(raw) || raw.kind !== undefined || typeof raw.type !== "string" || !isJsonObject(raw.object))
    return undefined;
  return { type: raw.type, object: raw.object };
}

/** The problem that `second` is unused because `first` defines the same object. */
export function duplicateProblem(second: ManifestObject, first: ManifestObject): ManifestProblem {
  const { file, document, line, title } = second;
  const where = first.file === file ? `line ${first.line} of this file` : `${first.file}, document ${first.document}`;
  const message = `is defined twice: the one in ${where} is used; remove one of them`;
  return { severity: "error", file, document, line, object: title, field: "", message };
}
