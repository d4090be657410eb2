/**
 * Which service port has which portal, when several claim the same: the first by name. Reference legacy-modes.md §1.4, where
 * the first to come has it; here it must not depend on history.
 */
import type { Logger } from "../../logging/logger.ts";
import { FrontEndIndex } from "../../model/front-ends.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { Portal } from "./portals.ts";

export class PortalClaims {
  readonly #log: Logger;
  readonly #index = new FrontEndIndex();

  constructor(log: Logger) {
    this.#log = log;
  }

  /**
   * Replaces what a service port claims; `undefined` is nothing.
   *
   * @returns the keys of the others whose portals may be theirs now, or no more.
   */
  set(key: string, port: ServicePort | undefined): ReadonlySet<string> {
    const rivals = new Set<string>();
    for (const { claimants } of this.#index.conflictsOf(key)) for (const other of claimants) rivals.add(other);
    this.#index.set(key, port);
    for (const { frontEnd, claimants } of this.#index.conflictsOf(key)) {
      for (const other of claimants) rivals.add(other);
      this.#log.error(
        `Port conflict detected on port ${frontEnd}: the first service port by name has it`,
        new Error(claimants.join(" vs ")),
      );
    }
    rivals.delete(key);
    return rivals;
  }

  /** Those of the portals that are the service port's own. */
  own(key: string, portals: readonly Portal[]): readonly Portal[] {
    const lost = new Set<string>();
    for (const { frontEnd, claimants } of this.#index.conflictsOf(key)) if (claimants[0] !== key) lost.add(frontEnd);
    return lost.size === 0 ? portals : portals.filter(({ frontEnd }) => !lost.has(frontEnd));
  }
}
