/** How the value of a fact prints: in klog's text format, and as a JSON member (reference start.md §2.9). */
import { escapeJson, escapeLine, quoteText } from "./escape.ts";

const MAX_CAUSES = 8;

/**
 * The text of any thrown value: its message, then those of its causes unless a message already contains them.
 * Never throws.
 */
export function errorText(error: unknown): string {
  return describeError(error, MAX_CAUSES);
}

function describeError(error: unknown, depth: number): string {
  let text = ownText(error, depth);
  let cause = causeOf(error);
  for (let left = depth; cause !== undefined && left > 0; left -= 1) {
    const own = ownText(cause, left - 1);
    if (!text.includes(own)) text = `${text}: ${own}`;
    cause = causeOf(cause);
  }
  return text;
}

const causeOf = (error: unknown): unknown => (error instanceof Error ? error.cause : undefined);

/** The text of an error without its causes. */
function ownText(error: unknown, depth: number): string {
  if (!(error instanceof Error)) return typeof error === "string" ? error : plainText(error);
  const text = error.message === "" ? error.name : error.message;
  if (depth === 0 || !(error instanceof AggregateError) || error.errors.length === 0) return text;
  const parts = error.errors.map((part) => describeError(part, depth - 1)).join(", ");
  return error.message === "" ? `[${parts}]` : `${text}: [${parts}]`;
}

/** A value in a form that JSON can hold: errors and big integers become text, maps objects, and sets lists. */
function jsonMember(_key: string, value: unknown): unknown {
  if (typeof value === "bigint") return value.toString();
  if (value instanceof Error) return errorText(value);
  if (value instanceof Map) return Object.fromEntries(value);
  if (value instanceof Set) return [...value];
  return value;
}

function plainText(value: unknown): string {
  try {
    return JSON.stringify(value, jsonMember) ?? String(value);
  } catch {
    return "(value cannot be printed)";
  }
}

/** `key="one line"`, or the indented `key=<` … ` >` block when the text has more lines. */
function textPair(key: string, text: string): string {
  if (!text.includes("\n")) return `${key}=${quoteText(text)}`;
  const lines = text.endsWith("\n") ? text.slice(0, -1).split("\n") : text.split("\n");
  return `${key}=<\n${lines.map((line) => `\t${escapeLine(line)}\n`).join("")} >`;
}

/** A fact in the text format, without the leading space. Never throws. */
export function formatFact(key: string, value: unknown): string {
  switch (typeof value) {
    case "string":
      return textPair(key, value);
    case "number":
    case "bigint":
    case "boolean":
      return `${key}=${value}`;
    case "object":
      if (value === null) return `${key}=<nil>`;
      if (value instanceof Error) return textPair(key, errorText(value));
      if (value instanceof Date) return textPair(key, plainText(value).replaceAll('"', ""));
      return `${key}=${escapeJson(plainText(value))}`;
    default:
      return textPair(key, String(value));
  }
}

/** The JSON text of an object of facts; a note replaces a value that has no JSON form. Never throws. */
export function formatJsonFacts(facts: Readonly<Record<string, unknown>>): string {
  try {
    return escapeJson(JSON.stringify(facts, jsonMember));
  } catch {
    const texts = Object.entries(facts).map(([key, value]) => [key, isPlain(value) ? value : plainText(value)]);
    return escapeJson(JSON.stringify(Object.fromEntries(texts)));
  }
}

function isPlain(value: unknown): boolean {
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean";
}
