/**
 * What a commit costs whatever is in it, and how often commits should therefore begin. The kernel checks all paths through
 * the table for every commit that adds a rule, so that this grows with the table: 0.05 ms with 100 services, 3 ms with 10,000
 * (docs/performance.md).
 */

/** Commits of no more operations than this, a few services, cost little but what every commit costs. */
const SMALL_OPERATIONS = 16;
/** Weight of the latest small commit. */
const WEIGHT = 0.2;
/** While there are only large commits the estimate becomes this much smaller with each, until there are small ones again. */
const FADING = 0.98;
/** Commits begin no more often than it takes this many times what they cost at least: a quarter of a processor. */
const PERIODS = 4;
const LEAST_PERIOD_MS = 6;
const LONGEST_PERIOD_MS = 1000;

export class CommitCost {
  /** Undefined until there was a small commit. */
  #fixedMs: number | undefined;
  #lastMs = 0;

  /** Takes a measurement into account. */
  note(operations: number, milliseconds: number): void {
    this.#lastMs = milliseconds;
    const known = this.#fixedMs;
    if (operations <= SMALL_OPERATIONS) {
      this.#fixedMs = known === undefined ? milliseconds : known + WEIGHT * (milliseconds - known);
    } else if (known !== undefined) {
      this.#fixedMs = Math.min(known * FADING, milliseconds);
    }
  }

  /**
   * How long to leave the kernel alone after the last commit, so that changes that come one after the other share commits.
   * After one that took long by what was in it, not at all: a rest would only let the backlog grow.
   */
  get restMs(): number {
    const periodMs = Math.min(Math.max(PERIODS * (this.#fixedMs ?? 0), LEAST_PERIOD_MS), LONGEST_PERIOD_MS);
    return Math.max(0, periodMs - this.#lastMs);
  }
}
