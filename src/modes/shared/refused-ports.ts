/**
 * The owners that the kernel rejected when they were last tried, longest untried first: keys of service ports, or names of
 * other owners of rules. Each has its last known good rules, or none. Only this object remembers them for a mode, which
 * decides when they are tried again; the proxier passes on changed ports without knowing which of them were rejected.
 */
import type { SyncFailure } from "../../contract/backend.ts";

export class RefusedPorts extends Map<string, SyncFailure> {
  readonly #onNews: (failure: SyncFailure) => void;

  /** @param onNews called once for each rejected owner, and again only if the reason changes. */
  constructor(onNews: (failure: SyncFailure) => void = () => {}) {
    super();
    this.#onNews = onNews;
  }

  /** Records that the kernel rejected an owner in this sync, and moves it behind those that were not tried. */
  override set(owner: string, failure: SyncFailure): this {
    const isNews = this.get(owner)?.reason !== failure.reason;
    this.delete(owner);
    super.set(owner, failure);
    if (isNews) this.#onNews(failure);
    return this;
  }

  /** Likewise. @param subject the owner's name in messages. @default as before, or the owner itself */
  refuse(owner: string, reason: string, subject = this.get(owner)?.subject ?? owner): void {
    this.set(owner, { ...this.get(owner), subject, reason });
  }

  /** Replaces all failures after a sync that tried everything. */
  replace(failures: ReadonlyMap<string, SyncFailure>): void {
    for (const owner of this.keys()) if (!failures.has(owner)) this.delete(owner);
    for (const [owner, failure] of failures) this.set(owner, failure);
  }
}
