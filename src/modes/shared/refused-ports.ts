/**
 * The owners that the kernel rejected when they were last tried, longest untried first: keys of service ports, or names of
 * other owners of rules. Each has its last known good rules, or none. Only this object remembers them for a mode, which
 * decides when they are tried again; the proxier passes on changed ports without knowing which of them were rejected.
 */
import type { SyncFailure } from "../../contract/backend.ts";

type Listener = (failure: SyncFailure) => void;

export class RefusedPorts extends Map<string, SyncFailure> {
  readonly #onNews: Listener;
  readonly #onOver: Listener;

  /**
   * @param onNews called once for each rejected owner, and again only if the reason changes.
   * @param onOver called once the kernel has accepted a rejected owner's rules, or it has none any more.
   */
  constructor(onNews: Listener = () => {}, onOver: Listener = () => {}) {
    super();
    this.#onNews = onNews;
    this.#onOver = onOver;
  }

  /** Records that the kernel rejected an owner in this sync, and moves it behind those that were not tried. */
  override set(owner: string, failure: SyncFailure): this {
    const isNews = this.get(owner)?.reason !== failure.reason;
    super.delete(owner);
    super.set(owner, failure);
    if (isNews) this.#onNews(failure);
    return this;
  }

  /** Likewise. @param subject the owner's name in messages. @default as before, or the owner itself */
  refuse(owner: string, reason: string, subject = this.get(owner)?.subject ?? owner): void {
    this.set(owner, { ...this.get(owner), subject, reason });
  }

  override delete(owner: string): boolean {
    const failure = this.get(owner);
    if (failure !== undefined) this.#onOver(failure);
    return super.delete(owner);
  }

  /** Replaces all failures after a sync that tried everything. */
  replace(failures: ReadonlyMap<string, SyncFailure>): void {
    for (const owner of this.keys()) if (!failures.has(owner)) this.delete(owner);
    for (const [owner, failure] of failures) this.set(owner, failure);
  }
}
