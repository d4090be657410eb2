/**
 * What the kernel refused in the last sync: it may hold something else there than what was wanted, so the next sync looks at
 * it, or does it again, whether it has changed or not. A sync writes in two passes: first what is wanted, last what is not.
 */
export class Unverified<Key, Item> {
  #items: ReadonlyMap<Key, Item> = new Map();

  has(key: Key): boolean {
    return this.#items.has(key);
  }

  /** In the order in which they were refused. */
  items(): Iterable<Item> {
    return this.#items.values();
  }

  /** The first pass of a sync has ended: everything unverified was tried again, and this was refused. */
  replace(refused: Iterable<readonly [Key, Item]>): void {
    this.#items = new Map(refused);
  }

  /** The last pass of the same sync was refused this as well. */
  add(refused: Iterable<readonly [Key, Item]>): void {
    this.#items = new Map([...this.#items, ...refused]);
  }
}
