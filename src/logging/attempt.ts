/**
 * The result of `work`, or undefined if it throws: for work whose reason to fail does not matter.
 *
 * @param kind the only class of errors that counts as failing; others are thrown. @default any
 */
export function attempt<T>(work: () => T, kind?: abstract new (...args: never[]) => Error): T | undefined {
  try {
    return work();
  } catch (error) {
    if (kind === undefined || error instanceof kind) return undefined;
    throw error;
  }
}

/** Parses JSON; undefined if the text is not JSON. */
export function jsonIn(text: string): unknown {
  return attempt((): unknown => JSON.parse(text));
}
