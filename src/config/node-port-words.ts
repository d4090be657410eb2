/** The words of `nodePortAddresses` beside prefixes. Pure. */

/** Stands for the node's own primary addresses. */
export const NODE_PORT_ADDRESSES_PRIMARY = "primary";

/** Stand for the same prefixes on every node. */
const PREFIXES: Readonly<Record<string, readonly string[]>> = {
  localhost: ["127.0.0.0/8", "::1/128"],
  all: ["0.0.0.0/0", "::/0"],
};

/** In the order in which upstream names them. */
export const NODE_PORT_WORDS: readonly string[] = [NODE_PORT_ADDRESSES_PRIMARY, ...Object.keys(PREFIXES)];

/**
 * The list with every word replaced, in place; prefixes pass as they are (reference node.md §9).
 *
 * @param primary the node's own addresses as prefixes.
 */
export function withoutNodePortWords(
  nodePortAddresses: readonly string[],
  primary: readonly string[],
): readonly string[] {
  return nodePortAddresses.flatMap((entry) =>
    entry === NODE_PORT_ADDRESSES_PRIMARY
      ? primary
      : Object.hasOwn(PREFIXES, entry)
        ? (PREFIXES[entry] ?? [])
        : [entry],
  );
}
