/** Objects of HNS by ID, and by what they are looked up by: the frontends of a load balancer, the addresses of an endpoint. No I/O. */
import type { Guid } from "../../kernel/hcn/guid.ts";

export class HostIndex<T extends { readonly id: Guid }> {
  readonly #keysOf: (object: T) => Iterable<string>;
  readonly #byId = new Map<Guid, T>();
  /** Almost every key has one object. Several are in the order in which they were noted. */
  readonly #byKey = new Map<string, readonly T[]>();

  /** @param keysOf the keys of an object, each once. */
  constructor(keysOf: (object: T) => Iterable<string>, objects: Iterable<T> = []) {
    this.#keysOf = keysOf;
    for (const object of objects) this.note(object);
  }

  ids(): Iterable<Guid> {
    return this.#byId.keys();
  }

  all(): Iterable<T> {
    return this.#byId.values();
  }

  has(id: Guid): boolean {
    return this.#byId.has(id);
  }

  get(id: Guid): T | undefined {
    return this.#byId.get(id);
  }

  allAt(key: string): readonly T[] {
    return this.#byKey.get(key) ?? [];
  }

  /** The one that was noted last. */
  at(key: string): T | undefined {
    return this.allAt(key).at(-1);
  }

  note(object: T): void {
    this.forget(object.id);
    this.#byId.set(object.id, object);
    for (const key of this.#keysOf(object)) this.#byKey.set(key, [...this.allAt(key), object]);
  }

  /** @returns what was noted. */
  forget(id: Guid): T | undefined {
    const known = this.#byId.get(id);
    if (known === undefined) return undefined;
    this.#byId.delete(id);
    for (const key of this.#keysOf(known)) {
      const rest = this.allAt(key).filter((other) => other.id !== id);
      if (rest.length === 0) this.#byKey.delete(key);
      else this.#byKey.set(key, rest);
    }
    return known;
  }
}
