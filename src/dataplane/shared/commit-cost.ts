/**
 * The fixed cost of a commit, and how often there should therefore be one. In nftables mode the kernel checks all
 * paths through the table for every commit that adds a rule: 0.05 ms with 100 services, 3 ms with 10,000. In iptables mode a
 * tool starts, and reads and sends what its back end asks for: 7 to 700 ms (docs/performance.md).
 */

/** Commits of no more operations than this, a few services, cost little but what every commit costs. */
const SMALL_OPERATIONS = 16;
/** Weight of the latest small commit. */
const WEIGHT = 0.2;
/** While there are only large commits the estimate fades with each, until there are small ones again. */
const FADING = 0.9;
/** A commit is not free for this process either, however quick the kernel is. */
const LEAST_COST_MS = 1.2;
/**
 * Commits with several changes, one after the other, are a stream: what is at most 7 ms together instead of 5 waits a millisecond longer
 * on average and costs a seventh less. With fewer operations there is little to be shared; with more, each has a small part of the fixed
 * cost already, and the commit takes long enough by itself.
 */
const STREAM_COST_MS = 1.75;
const STREAM_OPERATIONS = { least: 8, most: 24 } as const;
/** Part of a processor that may be spent on what every commit costs, in the long run. */
const SHARE = 1 / 4;
/** So many commits may follow each other at once: a Service and its slices seldom change alone. */
const AT_ONCE = 4;
/** Upstream's `minSyncPeriod`: nothing is slower than there. */
const LONGEST_REST_MS = 1000;

export class CommitCost {
  /** Undefined until there was a small commit. */
  #fixedMs: number | undefined;
  /** Spent and not yet paid back, at {@link #reckonedMs}. */
  #debtMs = 0;
  #reckonedMs = 0;

  /** Takes a measurement into account. @param nowMs monotonic, at the end of the commit. */
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
   * Takes work into account that was no commit of changes, such as a rewriting of everything: all of its time counts, as far as
   * the longest rest pays it back. @param nowMs monotonic, at its end.
   */
  spend(milliseconds: number, nowMs: number): void {
    const most = LONGEST_REST_MS * SHARE + AT_ONCE * this.#costMs;
    this.#debtMs = Math.min(this.#debtAt(nowMs) + milliseconds, most);
    this.#reckonedMs = nowMs;
  }

  /**
   * How long to leave the kernel alone, so that changes that come one after the other share commits. The time that a commit
   * takes counts: after one that took long by what was in it there is no rest, which would only let the backlog grow.
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
