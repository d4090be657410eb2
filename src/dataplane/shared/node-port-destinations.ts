/** The host's addresses that node ports answer on, read again whenever a mode writes everything. */
import { localAddresses } from "../../kernel/route/addresses.ts";
import type { Logger } from "../../logging/logger.ts";
import { type NodePortAddresses, type NodePortIPs, nodePortIPs } from "../../model/node-port-addresses.ts";
import type { SyncFailure } from "../../sync/backend.ts";

/** Stands in the outcome of a sync that had to go on with the addresses that are known, so that it is tried again soon. */
export const UNKNOWN_ADDRESSES: SyncFailure = {
  subject: "node ports",
  reason: "the addresses of the node cannot be read; those that are known, if any, stay in use",
};

/** @returns undefined, after logging `failureText`, when the host's addresses cannot be read. */
export async function nodePortDestinations(
  addresses: NodePortAddresses,
  failureText: string,
  log: Logger,
): Promise<NodePortIPs | undefined> {
  if (addresses.matchesAll) return { kind: "all" };
  try {
    return nodePortIPs(addresses, await localAddresses(addresses.family));
  } catch (error) {
    log.error(failureText, error);
    return undefined;
  }
}
