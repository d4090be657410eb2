/** The words that `nodePortAddresses` takes besides prefixes. */

/** Stands for the node's own primary addresses. */
export const NODE_PORT_ADDRESSES_PRIMARY = "primary";

/** Stand for the same prefixes on every node. */
const PREFIXES: Readonly<Record<string, readonly string[]>> = {
  localhost: ["127.0.0.0/8", "::1/128"],
  all: ["0.0.0.0/0", "::/0"],
};

/** In upstream's order. */
export const NODE_PORT_WORDS: readonly string[] = [NODE_PORT_ADDRESSES_PRIMARY, ...Object.keys(PREFIXES)];

/**
 * The list with every word replaced where it stands; prefixes stay as they are (reference node.md §9).
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
