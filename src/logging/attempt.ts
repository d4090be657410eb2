/** The result of `work`, or undefined if it throws: for work whose reason to fail does not matter. */
export function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

/** Parses JSON; undefined if the text is not JSON. */
export function jsonIn(text: string): unknown {
  return attempt((): unknown => JSON.parse(text));
}
