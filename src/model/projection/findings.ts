/**
 * The problems that a projection finds in an object: problems refuse the object, warnings only drop one of its entries.
 */
import { attempt } from "../../logging/attempt.ts";

/** One problem of one field. */
export interface FieldProblem {
  /** Path inside the object: `spec.ports[0].port`. */
  readonly field: string;
  /** What is allowed, as a predicate of the field: `must be a whole number from 1 to 65535`. */
  readonly message: string;
  /** The value that was found; missing if the message is not about a value. */
  readonly value?: unknown;
}

/** The outcome of a projection. `warnings` name entries that were dropped from an otherwise valid record. */
export type Projection<T> =
  | { readonly ok: true; readonly record: T; readonly warnings: readonly FieldProblem[] }
  | { readonly ok: false; readonly problems: readonly FieldProblem[] };

/** The item of a list that is being read. */
interface Place {
  readonly list: string;
  readonly index: number;
  /** The item that has this list. */
  readonly outer: Place | undefined;
}

/** Collects problems while one object is read. */
export interface Findings {
  readonly problems: FieldProblem[];
  readonly warnings: FieldProblem[];
  /** Fields are named as in this item: their paths are only built for problems. */
  place: Place | undefined;
}

const NO_WARNINGS: readonly FieldProblem[] = Object.freeze([]);
const MAX_VALUE_CHARS = 120;
/** The most problems, and the most warnings, that are kept for one object: a hostile object has millions. */
const MAX_FINDINGS = 100;

export function newFindings(): Findings {
  return { problems: [], warnings: [], place: undefined };
}

/** Records a problem that refuses the whole object. */
export function refuse(found: Findings, field: string, message: string, value: unknown): void {
  add(found.problems, { field: pathOf(found.place, field), message, value });
}

/** Records an entry that is dropped. */
export function warn(found: Findings, field: string, message: string, value: unknown): void {
  add(found.warnings, { field: pathOf(found.place, field), message, value });
}

function pathOf(place: Place | undefined, field: string): string {
  return place === undefined ? field : pathOf(place.outer, joinPath(`${place.list}[${place.index}]`, field));
}

/** Joins two field paths; either may be empty. */
export function joinPath(a: string, b: string): string {
  return a === "" || b === "" ? a + b : `${a}.${b}`;
}

function add(list: FieldProblem[], problem: FieldProblem): void {
  if (list.length < MAX_FINDINGS) list.push(problem);
  else if (list.length === MAX_FINDINGS) list.push({ field: "", message: "has more problems, which are not listed" });
}

/** Concludes a projection: returns the record unless there are problems. */
export function conclude<T>(found: Findings, record: T): Projection<T> {
  if (found.problems.length > 0) return { ok: false, problems: found.problems };
  return { ok: true, record, warnings: found.warnings.length > 0 ? found.warnings : NO_WARNINGS };
}

/** Formats a value as one short line of JSON, in which line breaks and control characters are escaped. */
export function describeValue(value: unknown): string {
  if (value === undefined) return "nothing";
  // JSON.stringify throws if nesting exhausts the stack.
  const text = attempt(() => JSON.stringify(value) ?? String(value)) ?? "a value that cannot be shown";
  return text.length <= MAX_VALUE_CHARS ? text : `${text.slice(0, MAX_VALUE_CHARS)}…`;
}

/** What a value is, without its content: `a number`. */
export function kindOfValue(value: unknown): string {
  if (value === undefined || value === null) return "nothing";
  if (Array.isArray(value)) return "a list";
  return typeof value === "object" ? "an object" : typeof value === "string" ? "a text" : `a ${typeof value}`;
}

/** `spec.ports[0].port must be a whole number from 1 to 65535, got 65536`. */
export function formatProblem(problem: FieldProblem): string {
  return textOf(problem, describeValue);
}

/** The same without a value that may be a secret: `token must be a text (put it in quotes), got a number`. */
export function formatSecretProblem(problem: FieldProblem): string {
  const isOneOfFew = !/^must be an? /.test(problem.message) && typeof problem.value !== "object";
  return textOf(problem, isOneOfFew ? describeValue : kindOfValue);
}

function textOf(problem: FieldProblem, describe: (value: unknown) => string): string {
  const subject = problem.field === "" ? "the object" : problem.field;
  return `${subject} ${problem.message}${"value" in problem ? `, got ${describe(problem.value)}` : ""}`;
}
