/** The failure reported while the node's addresses cannot be read. */
import type { SyncFailure } from "../../contract/backend.ts";

/** Part of the outcome of a sync that had to use the last known addresses, so that it is retried soon. */
export const UNKNOWN_ADDRESSES: SyncFailure = {
  subject: "node ports",
  reason: "the addresses of the node cannot be read; the last known ones, if any, stay in use",
};
