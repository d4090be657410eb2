/** Helpers for reading libnftables' JSON, any part of which may have an unexpected type. */

export type JsonObject = Readonly<Record<string, unknown>>;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function listOf(value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value;
  return value === undefined ? [] : [value];
}

export function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

export function numberOf(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}

/** The name and body of `{"payload": {…}}`; undefined for anything that is not an object with exactly one key. */
export function named(value: unknown): { readonly name: string; readonly body: unknown } | undefined {
  if (!isObject(value)) return undefined;
  const [entry, ...rest] = Object.entries(value);
  return entry === undefined || rest.length > 0 ? undefined : { name: entry[0], body: entry[1] };
}
