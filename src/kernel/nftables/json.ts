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

/** What `nft -t` (terse) leaves out of a listing, if that shows: no set or map has an element, and something needs one. */
export function missingElements(objects: readonly unknown[]): readonly string[] {
  const bodies = objects.flatMap((one) => {
    const { name, body } = named(one) ?? {};
    return (name === "set" || name === "map") && isObject(body) && !listOf(body.flags).includes("dynamic")
      ? [body]
      : [];
  });
  if (bodies.some(({ elem }) => listOf(elem).length > 0)) return [];
  // Sets of addresses may be empty; a cluster without any Service has no such rules.
  return bodies.some(({ map }) => map === "verdict")
    ? ["no set or map has an element: nft -t (terse) leaves them out, so list without -t"]
    : [];
}
