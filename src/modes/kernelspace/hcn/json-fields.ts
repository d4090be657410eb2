/** Reads untrusted JSON: a value of an unexpected type counts as absent. */

export type JsonObject = Readonly<Record<string, unknown>>;

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The object, or an empty one. */
export function objectOf(value: unknown): JsonObject {
  return isJsonObject(value) ? value : {};
}

/** The list, or an empty one. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** The string, or an empty one. */
export function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/**
 * A number, which may also be written as a string or as a comma-separated list of names; otherwise 0.
 *
 * @param words the bits of each name; case does not matter.
 */
export function numberOf(value: unknown, words: Readonly<Record<string, number>> = {}): number {
  if (typeof value === "number") return Number.isInteger(value) && value >= 0 ? value : 0;
  if (typeof value !== "string") return 0;
  if (/^\d{1,10}$/.test(value)) return Number(value);
  const named = value.split(",").map((word) => {
    const wanted = word.trim().toLowerCase();
    return Object.entries(words).find(([name]) => name.toLowerCase() === wanted)?.[1] ?? 0;
  });
  return named.reduce((bits, bit) => bits | bit, 0);
}
