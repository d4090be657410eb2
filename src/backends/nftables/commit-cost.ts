/**
 * What a commit costs whatever is in it. The kernel checks all paths through the table for every commit that adds a rule, so
 * that this grows with the table: 0.05 ms with 100 services, 3 ms with 10,000 (docs/performance.md).
 */

/** Commits of no more operations than this, a few services, cost little but what every commit costs. */
const SMALL_OPERATIONS = 16;
/** Weight of the latest commit. */
const WEIGHT = 0.2;
/** Rests are this many times as long as what a commit costs at least: its share of a processor stays at a quarter. */
const RESTS = 3;
const LONGEST_REST_MS = 1000;

export class CommitCost {
  /** Undefined until there was a small commit. */
  #fixedMs: number | undefined;

  /** Takes a measurement into account. */
  note(operations: number, milliseconds: number): void {
    const known = this.#fixedMs;
    if (operations <= SMALL_OPERATIONS) {
      this.#fixedMs = known === undefined ? milliseconds : known + WEIGHT * (milliseconds - known);
    } else if (known !== undefined && milliseconds < known) {
      this.#fixedMs = milliseconds;
    }
  }

  /** How long to leave the kernel alone after a commit, so that changes that come one after the other share commits. */
  get restMs(): number {
    return Math.min(RESTS * (this.#fixedMs ?? 0), LONGEST_REST_MS);
  }
}
