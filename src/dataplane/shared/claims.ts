/**
 * Who wants what at which key of the kernel's tables. Several service ports may share one key, such as the cluster IP of all
 * ports of a Service; frontends have one owner already (`model/frontend-ownership.ts`). The first claimant by precedence and
 * name decides the value, so that the outcome never depends on history.
 */

/** A value, and the key of the service port that it is for. */
export interface Claim<T> {
  readonly owner: string;
  readonly value: T;
}

/** What was at each key before the first of several changes; `undefined`: nothing. */
export type Touched<T> = Map<string, T | undefined>;

export class Claims<T> {
  // Almost every key has one claimant: it stands alone then, in a list otherwise (sorted by precedence and owner).
  readonly #claims = new Map<string, Claim<T> | readonly Claim<T>[]>();
  readonly #precedence: (a: T, b: T) => number;

  /** @param precedence negative when the first value goes before the second, before names decide. @default none does */
  constructor(precedence: (a: T, b: T) => number = () => 0) {
    this.#precedence = precedence;
  }

  /** Number of keys. */
  get size(): number {
    return this.#claims.size;
  }

  /** The keys in the order in which they were first claimed. */
  keys(): Iterable<string> {
    return this.#claims.keys();
  }

  /** What belongs at each key, in the same order. */
  *winners(): Iterable<Claim<T>> {
    for (const claims of this.#claims.values()) {
      const [winner] = listOf(claims);
      if (winner !== undefined) yield winner;
    }
  }

  /** {@link keys} and {@link winners} together. */
  *entries(): Iterable<readonly [key: string, winner: Claim<T>]> {
    for (const [key, claims] of this.#claims) {
      const [winner] = listOf(claims);
      if (winner !== undefined) yield [key, winner];
    }
  }

  has(key: string): boolean {
    return this.#claims.has(key);
  }

  /** What belongs at a key, and whom it is for. */
  winner(key: string): Claim<T> | undefined {
    const claims = this.#claims.get(key);
    return claims === undefined ? undefined : listOf(claims)[0];
  }

  /** What belongs at a key. */
  get(key: string): T | undefined {
    return this.winner(key)?.value;
  }

  /**
   * Replaces what an owner claims; of several values for one key the last counts.
   *
   * @param touched is told of every key that may have changed.
   */
  replace(
    owner: string,
    before: Iterable<readonly [key: string, value: T]>,
    after: Iterable<readonly [key: string, value: T]>,
    touched?: Touched<T>,
  ): void {
    for (const [key] of before) {
      this.#touch(key, touched);
      this.#remove(key, owner);
    }
    for (const [key, value] of after) {
      this.#touch(key, touched);
      this.#add(key, { owner, value });
    }
  }

  #touch(key: string, touched: Touched<T> | undefined): void {
    if (touched !== undefined && !touched.has(key)) touched.set(key, this.get(key));
  }

  #add(key: string, claim: Claim<T>): void {
    const present = this.#claims.get(key);
    if (present === undefined) {
      this.#claims.set(key, claim);
      return;
    }
    const others = listOf(present).filter(({ owner }) => owner !== claim.owner);
    this.#claims.set(
      key,
      others.length === 0
        ? claim
        : [...others, claim].sort((a, b) => this.#precedence(a.value, b.value) || byOwner(a, b)),
    );
  }

  #remove(key: string, owner: string): void {
    const present = this.#claims.get(key);
    if (present === undefined) return;
    const rest = listOf(present).filter((claim) => claim.owner !== owner);
    const [only] = rest;
    if (only === undefined) this.#claims.delete(key);
    else this.#claims.set(key, rest.length === 1 ? only : rest);
  }
}

function listOf<T>(claims: Claim<T> | readonly Claim<T>[]): readonly Claim<T>[] {
  return "owner" in claims ? [claims] : claims;
}

function byOwner<T>(a: Claim<T>, b: Claim<T>): number {
  return a.owner < b.owner ? -1 : a.owner > b.owner ? 1 : 0;
}
