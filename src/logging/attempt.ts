/** What work gives, or undefined when it throws: for work of which it does not matter why it fails. */
export function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

/** What a text holds as JSON; undefined when it is none. Pure. */
export function jsonIn(text: string): unknown {
  return attempt((): unknown => JSON.parse(text));
}
