/** Service ports that claim one address: found and said with the change that brings it about. */
import type { Logger } from "../logging/logger.ts";
import type { FrontEndIndex } from "../model/front-ends.ts";
import type { SyncInput } from "../sync/backend.ts";
import { TimeSlice } from "../sync/time-slice.ts";

/**
 * Brings the index up to date with the ports that changed, and warns of every conflict that one of them is part of. Rejects
 * with the signal's reason when it aborts.
 *
 * @returns whether any of them was part of a conflict, or is now.
 */
export async function noteFrontEnds(
  frontEnds: FrontEndIndex,
  { changedPorts, services }: Pick<SyncInput, "changedPorts" | "services">,
  log: Logger,
  signal: AbortSignal,
): Promise<boolean> {
  let isConflicted = false;
  const slice = new TimeSlice();
  for (const key of changedPorts) {
    if (slice.isOver()) await slice.next(signal);
    isConflicted ||= frontEnds.conflictsOf(key).length > 0;
    frontEnds.set(key, services.get(key));
    for (const { frontEnd, claimants } of frontEnds.conflictsOf(key)) {
      isConflicted = true;
      log.warn("Several service ports claim the same address; the first by name answers", {
        frontEnd,
        claimants: claimants.join(", "),
        winner: claimants[0],
      });
    }
  }
  return isConflicted;
}
