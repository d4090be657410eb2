/** Service ports that claim one address: found and said with the change that brings it about. */
import type { Logger } from "../logging/logger.ts";
import type { FrontEndIndex } from "../model/front-ends.ts";
import type { SyncInput } from "../sync/backend.ts";

/** Brings the index up to date with the ports that changed, and warns of every conflict that one of them is part of. */
export function noteFrontEnds(
  frontEnds: FrontEndIndex,
  { changedPorts, services }: Pick<SyncInput, "changedPorts" | "services">,
  log: Logger,
): void {
  for (const key of changedPorts) {
    frontEnds.set(key, services.get(key));
    for (const { frontEnd, claimants } of frontEnds.conflictsOf(key)) {
      log.warn("Several service ports claim the same address; the first by name answers", {
        frontEnd,
        claimants: claimants.join(", "),
        winner: claimants[0],
      });
    }
  }
}
