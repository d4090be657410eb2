/** Texts that are kept by the ten thousand. */

/**
 * The parts as one piece of text. Of what `+` and templates make, the engine keeps a tree, and once it is the key of a map both the
 * tree and the text: 32 bytes and more for each. Pure.
 */
export function flatText(...parts: readonly string[]): string {
  return parts.join("");
}
