/**
 * The candidates for each key of the kernel's tables. Several service ports may share one key, such as the cluster IP of all
 * ports of a Service; frontends have one owner already (`model/frontend-ownership.ts`). The first candidate by precedence and
 * name decides the value, so that the outcome never depends on history.
 */

/** A value, and the key of the service port that it is for. */
interface Candidate<T> {
  readonly owner: string;
  readonly value: T;
}

/** The value at each key before the first of several changes; `undefined`: nothing. */
type Touched<T> = Map<string, T | undefined>;

export class KeyOwners<T> {
  // Almost every key has one candidate: it stands alone then, in a list otherwise (sorted by precedence and owner).
  readonly #candidates = new Map<string, Candidate<T> | readonly Candidate<T>[]>();
  readonly #precedence: (a: T, b: T) => number;
  #touched: Touched<T> | undefined;

  /** @param precedence negative when the first value goes before the second, before names decide. @default none does */
  constructor(precedence: (a: T, b: T) => number = () => 0) {
    this.#precedence = precedence;
  }

  /** Number of keys. */
  get size(): number {
    return this.#candidates.size;
  }

  /** The keys in the order in which they were first asked for. */
  keys(): Iterable<string> {
    return this.#candidates.keys();
  }

  /** The winner at each key, in the same order. */
  *allEffective(): Iterable<Candidate<T>> {
    for (const candidates of this.#candidates.values()) {
      const [winner] = listOf(candidates);
      if (winner !== undefined) yield winner;
    }
  }

  /** {@link keys} and {@link allEffective} together. */
  *entries(): Iterable<readonly [key: string, effective: Candidate<T>]> {
    for (const [key, candidates] of this.#candidates) {
      const [winner] = listOf(candidates);
      if (winner !== undefined) yield [key, winner];
    }
  }

  has(key: string): boolean {
    return this.#candidates.has(key);
  }

  /** The winner at a key. */
  effective(key: string): Candidate<T> | undefined {
    const candidates = this.#candidates.get(key);
    return candidates === undefined ? undefined : listOf(candidates)[0];
  }

  get(key: string): T | undefined {
    return this.effective(key)?.value;
  }

  /** All that want something at a key, the one that decides first. */
  ownersOf(key: string): readonly string[] {
    const candidates = this.#candidates.get(key);
    return candidates === undefined ? [] : listOf(candidates).map(({ owner }) => owner);
  }

  /** From now on, what was at each key before it may have changed. */
  track(): Touched<T> {
    this.#touched = new Map();
    return this.#touched;
  }

  /** Since {@link track}. */
  get touched(): ReadonlyMap<string, T | undefined> {
    return this.#touched ?? new Map();
  }

  /** Replaces what an owner wants; of several values for one key the last counts. */
  replace(
    owner: string,
    before: Iterable<readonly [key: string, value: T]>,
    after: Iterable<readonly [key: string, value: T]>,
  ): void {
    for (const [key] of before) {
      this.#touch(key);
      this.#remove(key, owner);
    }
    for (const [key, value] of after) {
      this.#touch(key);
      this.#add(key, { owner, value });
    }
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
    const others = listOf(present).filter(({ owner }) => owner !== candidate.owner);
    this.#candidates.set(
      key,
      others.length === 0
        ? candidate
        : [...others, candidate].sort((a, b) => this.#precedence(a.value, b.value) || byOwner(a, b)),
    );
  }

  #remove(key: string, owner: string): void {
    const present = this.#candidates.get(key);
    if (present === undefined) return;
    const rest = listOf(present).filter((candidate) => candidate.owner !== owner);
    const [only] = rest;
    if (only === undefined) this.#candidates.delete(key);
    else this.#candidates.set(key, rest.length === 1 ? only : rest);
  }
}

function listOf<T>(candidates: Candidate<T> | readonly Candidate<T>[]): readonly Candidate<T>[] {
  return "owner" in candidates ? [candidates] : candidates;
}

function byOwner<T>(a: Candidate<T>, b: Candidate<T>): number {
  return a.owner < b.owner ? -1 : a.owner > b.owner ? 1 : 0;
}
