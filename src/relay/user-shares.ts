/** How many connections each user's processes have, so that one process cannot take all descriptors of the relays. */

/** A user's part of all connections is one in so many. */
const PART = 4;
/** Each takes about 14 kB. */
const MOST = 1_000;

export class UserShares {
  readonly limit: number;
  readonly #onFull: (user: number | undefined, limit: number) => void;
  readonly #connections = new Map<number | undefined, number>();

  /** @param connections how many there may be in all. @param onFull called for each that is refused */
  constructor(connections: number, onFull: (user: number | undefined, limit: number) => void) {
    this.limit = Math.max(1, Math.min(MOST, Math.floor(connections / PART)));
    this.#onFull = onFull;
  }

  /** @returns whether the user may have one more connection; it is counted then. */
  take(user: number | undefined): boolean {
    const count = this.#connections.get(user) ?? 0;
    if (count >= this.limit) {
      this.#onFull(user, this.limit);
      return false;
    }
    this.#connections.set(user, count + 1);
    return true;
  }

  giveBack(user: number | undefined): void {
    const left = (this.#connections.get(user) ?? 0) - 1;
    if (left > 0) this.#connections.set(user, left);
    else this.#connections.delete(user);
  }
}
