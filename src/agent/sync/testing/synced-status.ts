/** A proxier's status when there is nothing left to do. */
import type { ProxierStatus } from "../proxier-options.ts";

export const SYNCED: ProxierStatus = {
  isInitialised: true,
  isSyncing: false,
  needsFullSync: false,
  isFailing: false,
  failures: [],
  remarks: [],
};
