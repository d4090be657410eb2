/** A family of a daemon as a node that planners and explanations can look at. */
import type { LiveDaemon, LiveFamily } from "../daemon/inspect-report.ts";
import type { OfflineNode } from "../inspect/offline-node.ts";
import { localAddresses } from "../kernel/route/addresses.ts";
import { nodePortIPs } from "../model/node-port-addresses.ts";

/** @param readAddresses of the host; those that cannot be read are none. */
export async function nodeView(
  daemon: LiveDaemon,
  family: LiveFamily,
  readAddresses = localAddresses,
): Promise<OfflineNode> {
  const own = await readAddresses(family.family).catch(() => []);
  const { nodePortAddresses, detector, nodeIP, state } = family;
  return {
    family: family.family,
    name: daemon.node,
    zone: daemon.zone(),
    nodeIP,
    detector,
    nodePortAddresses,
    nodePortIPs: nodePortIPs(nodePortAddresses, own),
    hostAddresses: own,
    serviceCIDRs: family.serviceCIDRs(),
    state,
  };
}
