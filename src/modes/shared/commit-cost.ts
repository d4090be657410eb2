/**
 * The fixed cost of a commit, and the rest between commits that follows from it. In nftables mode the kernel checks all
 * paths through the table for every commit that adds a rule: 0.05 ms with 100 Services, 3 ms with 10,000. In iptables
 * mode a tool starts, and reads and sends what its back end requires: 7 to 700 ms (docs/notes/performance-diary.md).
 */

/** Commits of at most this many operations (a few Services) cost little more than the fixed cost. */
const SMALL_OPERATIONS = 16;
/** Each large commit reduces the estimate by this factor, until there is a small one again. */
const FADING = 0.9;
/** The rest for each millisecond of fixed cost, so that fixed costs use a quarter of a CPU in the long run. */
const REST_PER_MS = 3;
/** A commit also costs this process something, however fast the kernel is. */
const LEAST_REST_MS = 5;
/** Upstream's `minSyncPeriod`, so that no change waits longer than there. */
const LONGEST_REST_MS = 1000;
/** After so many commits in a row there is no rest: a Service and its slices seldom change alone. */
const AT_ONCE = 4;

export class CommitCost {
  #fixedMs = 0;
  /** Commits since the last pause. */
  #inRow = 0;
  #endMs = Number.NEGATIVE_INFINITY;
  #restMs = 0;

  /** Accounts for a commit. @param nowMs monotonic, at the end of the commit. */
  note(operations: number, milliseconds: number, nowMs: number): void {
    const isSmall = operations <= SMALL_OPERATIONS;
    this.#fixedMs = isSmall ? milliseconds : Math.min(this.#fixedMs * FADING, milliseconds);
    const restMs = restFor(this.#fixedMs);
    // The cost of such bursts, too, is a quarter of the time.
    if (nowMs - milliseconds - this.#endMs >= AT_ONCE * restMs) this.#inRow = 0;
    this.#inRow += 1;
    this.#endMs = nowMs;
    // A rest after a commit that took long because of its content would only let the backlog grow.
    this.#restMs = this.#inRow <= AT_ONCE ? 0 : Math.max(0, restMs - (milliseconds - this.#fixedMs));
  }

  /** Accounts for work other than a commit of changes, such as rewriting everything. @param nowMs monotonic, at its end. */
  spend(milliseconds: number, nowMs: number): void {
    this.#endMs = nowMs;
    this.#restMs = restFor(milliseconds);
  }

  /** How long to rest before the next commit, so that consecutive changes share commits. @param nowMs monotonic. */
  restMs(nowMs: number): number {
    return Math.max(0, this.#endMs + this.#restMs - nowMs);
  }
}

function restFor(milliseconds: number): number {
  return Math.min(Math.max(LEAST_REST_MS, REST_PER_MS * milliseconds), LONGEST_REST_MS);
}
