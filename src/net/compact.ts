/** Lists and strings kept by the tens of thousands, without what the engine adds to them. */

/** A copy without spare room: a growing list has room for sixteen more items, 130 bytes that most never use. */
export function exactList<T>(items: readonly T[]): T[] {
  return items.slice();
}

/**
 * Joins the parts into one flat string. The engine keeps the result of `+` and templates as a tree and, once it is a map key, both
 * the tree and the flat string: 32 bytes or more for each.
 */
export function flatText(...parts: readonly string[]): string {
  return parts.join("");
}
