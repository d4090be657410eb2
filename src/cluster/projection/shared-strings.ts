/**
 * One copy of each text that thousands of records repeat (namespaces, node names, port names, zones). Texts are only
 * shared after they passed their check, so looking one up here is also the check. Bounded: a cluster whose nodes come
 * and go for months must not grow it without end.
 */
const LIMIT = 16_384;

/** A check together with the texts that passed it. */
interface SharedStrings {
  /** The shared copy of a text that passes the check, `undefined` for one that does not. */
  share(text: string): string | undefined;
}

/** Makes a pool for texts that satisfy `isValid`. */
export function sharedStrings(isValid: (text: string) => boolean): SharedStrings {
  const known = new Map<string, string>();
  return {
    share(text) {
      const shared = known.get(text);
      if (shared !== undefined) return shared;
      if (!isValid(text)) return undefined;
      if (known.size >= LIMIT) known.clear();
      known.set(text, text);
      return text;
    },
  };
}
