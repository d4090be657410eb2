/**
 * The candidates for each key of a table: frontends, or keys of the kernel's tables, which several service ports may share,
 * such as the cluster IP of all ports of a Service. The first candidate by precedence and name decides the value, so that the
 * result never depends on history.
 */

/** A value, and the key of the service port that wants it. */
export interface Candidate<T> {
  readonly owner: string;
  readonly value: T;
}

/** The value at each key before the first of several changes; `undefined` if there was none. */
type Touched<T> = Map<string, T | undefined>;

export class KeyOwners<T> {
  // Almost every key has one candidate, stored without a list; several are in a list sorted by precedence and owner.
  readonly #candidates = new Map<string, Candidate<T> | Candidate<T>[]>();
  readonly #precedence: (a: T, b: T) => number;
  #touched: Touched<T> | undefined;

  /** @param precedence compares two values before names do: negative if the first wins. @default only names decide */
  constructor(precedence: (a: T, b: T) => number = () => 0) {
    this.#precedence = precedence;
  }

  get size(): number {
    return this.#candidates.size;
  }

  /** The keys in the order in which they were first wanted. */
  keys(): Iterable<string> {
    return this.#candidates.keys();
  }

  /** The deciding candidate at each key, in the same order. */
  *entries(): Iterable<readonly [key: string, effective: Candidate<T>]> {
    for (const [key, candidates] of this.#candidates) {
      const [winner] = listOf(candidates);
      if (winner !== undefined) yield [key, winner];
    }
  }

  has(key: string): boolean {
    return this.#candidates.has(key);
  }

  /** The candidate that decides the value at a key. */
  effective(key: string): Candidate<T> | undefined {
    const candidates = this.#candidates.get(key);
    return candidates === undefined ? undefined : listOf(candidates)[0];
  }

  get(key: string): T | undefined {
    return this.effective(key)?.value;
  }

  /** All owners of a key, the deciding one first. */
  ownersOf(key: string): readonly string[] {
    const candidates = this.#candidates.get(key);
    return candidates === undefined ? [] : listOf(candidates).map(({ owner }) => owner);
  }

  /** Starts recording the value of each key before its first change. */
  track(): Touched<T> {
    this.#touched = new Map();
    return this.#touched;
  }

  /** The values recorded since {@link track}. */
  get touched(): ReadonlyMap<string, T | undefined> {
    return this.#touched ?? new Map();
  }

  /**
   * Replaces what an owner wants; the last of several values for one key counts.
   *
   * @param before the `after` of the previous call.
   */
  replace(
    owner: string,
    before: Iterable<readonly [key: string, value: T]>,
    after: Iterable<readonly [key: string, value: T]>,
  ): void {
    for (const [key, value] of new Map(before)) this.change(owner, key, value, undefined);
    for (const [key, value] of new Map(after)) this.change(owner, key, undefined, value);
  }

  /** The same at one key. */
  change(owner: string, key: string, before: T | undefined, after: T | undefined): void {
    this.#touch(key);
    if (before !== undefined) this.#remove(key, { owner, value: before });
    if (after !== undefined) this.#add(key, { owner, value: after });
  }

  #touch(key: string): void {
    if (this.#touched?.has(key) === false) this.#touched.set(key, this.get(key));
  }

  #add(key: string, candidate: Candidate<T>): void {
    const present = this.#candidates.get(key);
    if (present === undefined) {
      this.#candidates.set(key, candidate);
      return;
    }
    const list = listOf(present);
    const at = this.#placeOf(list, candidate);
    list.splice(at, list[at]?.owner === candidate.owner ? 1 : 0, candidate);
    this.#candidates.set(key, list.length === 1 ? candidate : list);
  }

  #remove(key: string, candidate: Candidate<T>): void {
    const list = listOf(this.#candidates.get(key) ?? []);
    const at = this.#placeOf(list, candidate);
    if (list[at]?.owner !== candidate.owner) return;
    list.splice(at, 1);
    const [only] = list;
    if (only === undefined) this.#candidates.delete(key);
    else if (list.length === 1) this.#candidates.set(key, only);
  }

  /** The index at which a candidate is or belongs, by binary search: ten thousand ports may share one address. */
  #placeOf(list: readonly Candidate<T>[], { owner, value }: Candidate<T>): number {
    let [from, to] = [0, list.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      const other = list[middle];
      const order = other === undefined ? 0 : this.#precedence(other.value, value);
      if (order < 0 || (order === 0 && other !== undefined && other.owner < owner)) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}

/** The list itself, to be changed in place; a new list for a single candidate. */
function listOf<T>(candidates: Candidate<T> | Candidate<T>[]): Candidate<T>[] {
  return "owner" in candidates ? [candidates] : candidates;
}
