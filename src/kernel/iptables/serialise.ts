/** Runs pieces of work one after the other, in the order in which they were handed over. */
export type Serialise = <T>(work: () => Promise<T>) => Promise<T>;

/** A queue of its own; a piece of work that fails does not stop the next ones. */
export function createSerialiser(): Serialise {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const next = last.then(work);
    last = next.catch(() => {});
    return next;
  };
}
