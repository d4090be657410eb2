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

/** The name and body of `{"payload": {…}}`, and the body's fields; an empty name for anything that is not an object with exactly one key. */
export function named(value: unknown): { readonly name: string; readonly body: unknown; readonly fields: JsonObject } {
  const [[name, body] = ["", undefined], ...rest] = isObject(value) ? Object.entries(value) : [];
  if (rest.length > 0) return { name: "", body: undefined, fields: {} };
  return { name, body, fields: isObject(body) ? body : {} };
}

/** The parts of a concatenation; anything else as its own only part. */
export function partsOf(value: unknown): readonly unknown[] {
  const { name, body } = named(value);
  return name === "concat" ? listOf(body) : [value];
}

/** An element of a set or map: its value `val`, and what it has beside it. */
export function elementOf(element: unknown): JsonObject {
  const { name, body, fields } = named(element);
  return name === "elem" && isObject(body) ? fields : { val: element };
}

/** What `nft -t` (terse) leaves out of a listing, if that shows: no set or map has an element, and something needs one. */
export function missingElements(objects: readonly unknown[]): readonly string[] {
  const bodies = objects.flatMap((one) => {
    const { name, fields } = named(one);
    return (name === "set" || name === "map") && !listOf(fields.flags).includes("dynamic") ? [fields] : [];
  });
  if (bodies.some(({ elem }) => listOf(elem).length > 0)) return [];
  // Sets of addresses may be empty; a cluster without any Service has no such rules.
  return bodies.some(({ map }) => map === "verdict")
    ? ["no set or map has an element: nft -t (terse) leaves them out, so list without -t"]
    : [];
}
