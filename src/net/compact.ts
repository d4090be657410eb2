/** For strings kept by the tens of thousands. */

/**
 * Joins the parts into one flat string. The engine keeps the result of `+` and templates as a tree and, once it is a map key, both
 * the tree and the flat string: 32 bytes or more for each.
 */
export function flatText(...parts: readonly string[]): string {
  return parts.join("");
}
