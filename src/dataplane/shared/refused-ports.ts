/**
 * The owners that the kernel refused in the last sync: each has its last known good rules, or none, and is tried again apart
 * from everything else. The one place that remembers this for a mode; the proxier hands on changed ports, and does not
 * know which of them were refused.
 */
import type { SyncFailure } from "../../sync/backend.ts";

interface RefusedPortsOptions {
  /** Called once for each owner that is refused, and again only when the reason changes. */
  readonly onNews?: (failure: SyncFailure) => void;
}

export class RefusedPorts {
  readonly #onNews: (failure: SyncFailure) => void;
  /** Those that wait longest for being tried come first. */
  readonly #byOwner = new Map<string, SyncFailure>();

  constructor({ onNews = () => {} }: RefusedPortsOptions = {}) {
    this.#onNews = onNews;
  }

  get size(): number {
    return this.#byOwner.size;
  }

  /** Service ports by key, or what else has rules of its own. */
  get owners(): readonly string[] {
    return [...this.#byOwner.keys()];
  }

  get byOwner(): ReadonlyMap<string, SyncFailure> {
    return this.#byOwner;
  }

  get failures(): readonly SyncFailure[] {
    return [...this.#byOwner.values()];
  }

  has(owner: string): boolean {
    return this.#byOwner.has(owner);
  }

  /**
   * The kernel has refused it in this sync; others that were not tried come first next time.
   *
   * @param subject how messages name the owner. @default as before, or the owner itself
   */
  refuse(owner: string, reason: string, subject?: string): void {
    const before = this.#byOwner.get(owner);
    this.#put(owner, { ...before, subject: subject ?? before?.subject ?? owner, reason });
  }

  #put(owner: string, failure: SyncFailure): void {
    const isNews = this.#byOwner.get(owner)?.reason !== failure.reason;
    this.#byOwner.delete(owner);
    this.#byOwner.set(owner, failure);
    if (isNews) this.#onNews(failure);
  }

  /** The kernel has taken it, or there is nothing to be taken any more. */
  forget(owner: string): void {
    this.#byOwner.delete(owner);
  }

  /** A sync that tried everything has left these, and nothing else. */
  replace(failures: ReadonlyMap<string, SyncFailure>): void {
    for (const owner of this.owners) if (!failures.has(owner)) this.#byOwner.delete(owner);
    for (const [owner, failure] of failures) this.#put(owner, failure);
  }
}
