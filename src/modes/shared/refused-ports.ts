/**
 * The owners that the kernel rejected when they were last tried: each has its last known good rules, or none. Only this
 * object remembers them for a mode, which decides when they are tried again; the proxier passes on changed ports without
 * knowing which of them were rejected.
 */
import type { SyncFailure } from "../../contract/backend.ts";

interface RefusedPortsOptions {
  /** Called once for each rejected owner, and again only if the reason changes. */
  readonly onNews?: (failure: SyncFailure) => void;
}

export class RefusedPorts {
  readonly #onNews: (failure: SyncFailure) => void;
  /** Longest untried first. */
  readonly #byOwner = new Map<string, SyncFailure>();

  constructor({ onNews = () => {} }: RefusedPortsOptions = {}) {
    this.#onNews = onNews;
  }

  get size(): number {
    return this.#byOwner.size;
  }

  /** Keys of service ports, or names of other owners of rules. */
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
   * Records that the kernel rejected an owner in this sync, and moves it behind those that were not tried.
   *
   * @param subject the owner's name in messages. @default as before, or the owner itself
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

  /** Forgets an owner: the kernel accepted its rules, or it has none any more. */
  forget(owner: string): void {
    this.#byOwner.delete(owner);
  }

  /** Replaces all failures after a sync that tried everything. */
  replace(failures: ReadonlyMap<string, SyncFailure>): void {
    for (const owner of this.owners) if (!failures.has(owner)) this.#byOwner.delete(owner);
    for (const [owner, failure] of failures) this.#put(owner, failure);
  }
}
