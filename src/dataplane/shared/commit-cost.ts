/**
 * The fixed cost of a commit, and the rest between commits that follows from it. In nftables mode the kernel checks all
 * paths through the table for every commit that adds a rule: 0.05 ms with 100 Services, 3 ms with 10,000. In iptables
 * mode a tool starts, and reads and sends what its back end requires: 7 to 700 ms (docs/performance.md).
 */

/** Commits of at most this many operations (a few Services) cost little more than the fixed cost. */
const SMALL_OPERATIONS = 16;
/** Weight of the latest small commit in the average. */
const WEIGHT = 0.2;
/** Each large commit reduces the estimate by this factor, until there is a small one again. */
const FADING = 0.9;
/** A commit also costs this process something, however fast the kernel is. */
const LEAST_COST_MS = 1.2;
/**
 * Consecutive commits with several changes are a stream: collecting changes for up to 7 ms instead of 5 delays them by
 * a millisecond on average and costs a seventh less. With fewer operations there is little to share; with more, each
 * already bears a small part of the fixed cost, and the commit itself takes long enough.
 */
const STREAM_COST_MS = 1.75;
const STREAM_OPERATIONS = { least: 8, most: 24 } as const;
/** The share of a CPU that fixed costs may use in the long run. */
const SHARE = 1 / 4;
/** How many commits may follow each other without a rest: a Service and its slices seldom change alone. */
const AT_ONCE = 4;
/** Upstream's `minSyncPeriod`, so that no change waits longer than there. */
const LONGEST_REST_MS = 1000;

export class CommitCost {
  /** Undefined before the first small commit. */
  #fixedMs: number | undefined;
  /** Time spent and not yet paid back, at {@link #reckonedMs}. */
  #debtMs = 0;
  #reckonedMs = 0;

  /** Accounts for a commit. @param nowMs monotonic, at the end of the commit. */
  note(operations: number, milliseconds: number, nowMs: number): void {
    const known = this.#fixedMs;
    if (operations <= SMALL_OPERATIONS) {
      this.#fixedMs = known === undefined ? milliseconds : known + WEIGHT * (milliseconds - known);
    } else if (known !== undefined) {
      this.#fixedMs = Math.min(known * FADING, milliseconds);
    }
    const isStream = operations >= STREAM_OPERATIONS.least && operations <= STREAM_OPERATIONS.most;
    this.#debtMs = this.#debtAt(nowMs) + Math.max(this.#costMs, isStream ? STREAM_COST_MS : 0);
    this.#reckonedMs = nowMs;
  }

  /**
   * Accounts for work other than a commit of changes, such as rewriting everything: all of its time counts, up to what
   * the longest rest pays back. @param nowMs monotonic, at its end.
   */
  spend(milliseconds: number, nowMs: number): void {
    const most = LONGEST_REST_MS * SHARE + AT_ONCE * this.#costMs;
    this.#debtMs = Math.min(this.#debtAt(nowMs) + milliseconds, most);
    this.#reckonedMs = nowMs;
  }

  /**
   * How long to rest before the next commit, so that consecutive changes share commits. A commit's duration counts as
   * rest: after one that took long because of its content there is none, since it would only let the backlog grow.
   *
   * @param nowMs monotonic.
   */
  restMs(nowMs: number): number {
    const excessMs = this.#debtAt(nowMs) - AT_ONCE * this.#costMs;
    return Math.min(Math.max(0, excessMs / SHARE), LONGEST_REST_MS);
  }

  get #costMs(): number {
    return Math.max(this.#fixedMs ?? 0, LEAST_COST_MS);
  }

  #debtAt(nowMs: number): number {
    return Math.max(0, this.#debtMs - (nowMs - this.#reckonedMs) * SHARE);
  }
}
