/** What is said while the addresses of the node cannot be read. */
import type { SyncFailure } from "../../sync/backend.ts";

/** Stands in the outcome of a sync that had to go on with the addresses that are known, so that it is tried again soon. */
export const UNKNOWN_ADDRESSES: SyncFailure = {
  subject: "node ports",
  reason: "the addresses of the node cannot be read; those that are known, if any, stay in use",
};
