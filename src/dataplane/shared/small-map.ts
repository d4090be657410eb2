/**
 * A map that does not change, kept by the ten thousand. Nearly all have one entry, for which a map of the engine takes 200
 * bytes and this 40.
 */

class SingleEntry<V> implements ReadonlyMap<string, V> {
  readonly size = 1;
  readonly #key: string;
  readonly #value: V;

  constructor(key: string, value: V) {
    this.#key = key;
    this.#value = value;
  }

  get(key: string): V | undefined {
    return key === this.#key ? this.#value : undefined;
  }

  has(key: string): boolean {
    return key === this.#key;
  }

  forEach(visit: (value: V, key: string, map: ReadonlyMap<string, V>) => void): void {
    visit(this.#value, this.#key, this);
  }

  keys(): MapIterator<string> {
    return [this.#key].values();
  }

  values(): MapIterator<V> {
    return [this.#value].values();
  }

  entries(): MapIterator<[string, V]> {
    return [[this.#key, this.#value] satisfies [string, V]].values();
  }

  [Symbol.iterator](): MapIterator<[string, V]> {
    return this.entries();
  }
}

/** A map of these entries, whose keys differ. Pure. */
export function smallMap<V>(entries: readonly (readonly [string, V])[]): ReadonlyMap<string, V> {
  const [only] = entries;
  return only !== undefined && entries.length === 1 ? new SingleEntry(...only) : new Map(entries);
}
