/** The host's addresses at which node ports answer; modes read them again at every full sync. */
import { localAddresses } from "../../kernel/route/addresses.ts";
import type { Logger } from "../../logging/logger.ts";
import { type NodePortAddresses, type NodePortIPs, nodePortIPs } from "../../model/node-port-addresses.ts";

/** @returns undefined, after logging `failureText`, if the host's addresses cannot be read. */
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
