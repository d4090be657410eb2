/**
 * Readers for single fields of decoded JSON. Each records problems and always returns a usable value, so that all
 * problems of an object are reported at once.
 */
import { exactList } from "../../net/compact.ts";
import { type Findings, refuse } from "./findings.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

const NOTHING: JsonObject = Object.freeze({});
const NO_ITEMS: readonly never[] = Object.freeze([]);

/** Whether the value is a JSON object (not a list, not null). */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Whether the API treats the value as absent. */
export function isAbsent(value: unknown): value is undefined | null {
  return value === undefined || value === null;
}

/** An object; empty if absent. */
export function objectField(found: Findings, value: unknown, field: string): JsonObject {
  if (isAbsent(value)) return NOTHING;
  if (isJsonObject(value)) return value;
  refuse(found, field, "must be an object", value);
  return NOTHING;
}

/** A list; empty if absent. */
export function listField(found: Findings, value: unknown, field: string): readonly unknown[] {
  if (isAbsent(value)) return NO_ITEMS;
  if (Array.isArray(value)) return value;
  refuse(found, field, "must be a list", value);
  return NO_ITEMS;
}

/** A string; empty if absent. */
export function stringField(found: Findings, value: unknown, field: string): string {
  if (typeof value === "string") return value;
  if (!isAbsent(value)) refuse(found, field, "must be a text (put it in quotes)", value);
  return "";
}

/**
 * A frozen list of what is read from each item; a shared one if empty.
 *
 * @param read names fields as in the item. @returns undefined to leave the item out
 */
export function itemsField<T>(
  found: Findings,
  value: unknown,
  field: string,
  read: (item: unknown) => T | undefined,
): readonly T[] {
  const items = listField(found, value, field);
  if (items.length === 0) return NO_ITEMS;
  const { place: outer } = found;
  const place = { list: field, index: 0, outer };
  found.place = place;
  const list: T[] = [];
  for (; place.index < items.length; place.index++) {
    const one = read(items[place.index]);
    if (one !== undefined) list.push(one);
  }
  found.place = outer;
  return Object.freeze(exactList(list));
}

/** A frozen list of strings; a shared one if empty. */
export function stringListField(found: Findings, value: unknown, field: string): readonly string[] {
  return itemsField(found, value, field, (item) => {
    if (typeof item === "string") return item;
    refuse(found, "", "must be a text (put it in quotes)", item);
    return undefined;
  });
}

/** A boolean; `fallback` if absent. */
export function booleanField(found: Findings, value: unknown, field: string, fallback = false): boolean {
  if (typeof value === "boolean") return value;
  if (!isAbsent(value)) refuse(found, field, "must be true or false", value);
  return fallback;
}

/** One of the choices; `fallback`, the API server's default, if absent or empty. */
export function choiceField<T extends string>(
  found: Findings,
  value: unknown,
  field: string,
  choices: readonly T[],
  fallback: T,
): T {
  if (isAbsent(value) || value === "") return fallback;
  for (const choice of choices) {
    if (choice === value) return choice;
  }
  refuse(found, field, `must be ${orList(choices)}`, value);
  return fallback;
}

/** A port number, 1 to 65535. If `isOptional`, absent and 0 are allowed and yield 0. */
export function portField(found: Findings, value: unknown, field: string, isOptional = false): number {
  if (isPortNumber(value)) return value;
  if (isOptional && (isAbsent(value) || value === 0)) return 0;
  const allowed = "must be a whole number from 1 to 65535";
  refuse(found, field, isOptional ? `${allowed}, or absent` : allowed, value);
  return 0;
}

/** Whether the value is a port number, 1 to 65535. */
export function isPortNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= 65535;
}

function orList(words: readonly string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}
