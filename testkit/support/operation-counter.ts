/**
 * Counts visits: every element that an iteration or a method of a list, map or set visits, anywhere in the program,
 * during a piece of work. One change must give the same count in two sizes of a cluster; time need not be measured.
 *
 * While it counts, the engine's built-in prototypes are replaced, so nothing else should run in the process.
 */

/** List methods that visit each element, however they end. */
const LIST_METHODS = [
  "concat",
  "every",
  "filter",
  "find",
  "findIndex",
  "flat",
  "flatMap",
  "forEach",
  "includes",
  "indexOf",
  "join",
  "map",
  "reduce",
  "reverse",
  "slice",
  "some",
  "sort",
] as const;

type Anything = Record<PropertyKey, unknown>;

/** Runs the work and returns how many elements were visited meanwhile. */
export async function countVisits(work: () => Promise<void>): Promise<number> {
  let visits = 0;
  const undo: (() => void)[] = [];
  const replace = (target: object, name: PropertyKey, count: (self: unknown) => number): void => {
    const original = (target as Anything)[name];
    if (typeof original !== "function") throw new TypeError(`${String(name)} is no method`);
    const descriptor = Object.getOwnPropertyDescriptor(target, name);
    Object.defineProperty(target, name, {
      configurable: true,
      writable: true,
      value(this: unknown, ...given: unknown[]): unknown {
        visits += count(this);
        return Reflect.apply(original, this, given);
      },
    });
    undo.push(() => {
      if (descriptor !== undefined) Object.defineProperty(target, name, descriptor);
    });
  };
  const iterators = [[].values(), new Map().entries(), new Set().values()];
  const prototypes = iterators.map((iterator): object => Object.getPrototypeOf(iterator));
  const sizeOf = (self: unknown): number => (self instanceof Map || self instanceof Set ? self.size : 0);
  const lengthOf = (self: unknown): number => (Array.isArray(self) ? self.length : 0);
  for (const prototype of prototypes) replace(prototype, "next", () => 1);
  for (const prototype of [Map.prototype, Set.prototype]) replace(prototype, "forEach", sizeOf);
  for (const name of LIST_METHODS) replace(Array.prototype, name, lengthOf);
  try {
    await work();
    return visits;
  } finally {
    for (const step of undo.reverse()) step();
  }
}
