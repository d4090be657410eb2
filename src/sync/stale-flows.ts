/**
 * Ends the UDP flows that conntrack still sends to endpoints which no longer serve: reference sync.md §13.2, driven
 * over the connection tracking table. What is stale is decided in `model/stale-udp-flows.ts`.
 */

import type { ConntrackTable } from "../kernel/conntrack/conntrack.ts";
import type { Endpoint } from "../model/endpoint.ts";
import type { ServicePort } from "../model/service-port.ts";
import { anyServes, staleFlowTest, type UdpFrontends } from "../model/stale-udp-flows.ts";
import type { IpFamily } from "../net/ip.ts";
import type { UdpFlow } from "../net/udp-flow.ts";

/** Part of `ProxyState`: what the rules that are in the kernel now were made of. */
export interface ServedUdp {
  readonly udpServices: ReadonlyMap<string, ServicePort>;
  readonly udpFrontends: UdpFrontends;
  readonly endpoints: ReadonlyMap<string, readonly Endpoint[]>;
}

export interface CleanedFlows {
  /** Flows that are gone now, those that ended by themselves meanwhile included. */
  readonly deleted: number;
  /** Why flows could not be deleted, one entry for each. */
  readonly errors: readonly unknown[];
}

/**
 * Looks through the table and deletes the stale flows. Rejects when the table cannot be read; a flow that cannot be
 * deleted does not keep the others. Without a UDP service that serves, the table is not even read. An abort ends the
 * work between two deletions.
 */
export async function deleteStaleUdpFlows(
  table: ConntrackTable,
  family: IpFamily,
  served: ServedUdp,
  signal: AbortSignal,
): Promise<CleanedFlows> {
  const errors: unknown[] = [];
  if (!anyServes(served.udpServices.keys(), served.endpoints)) return { deleted: 0, errors };
  const isStale = staleFlowTest(served.udpFrontends, served.endpoints);
  const stale: UdpFlow[] = [];
  await table.forEachUdpFlow(family, (flow) => {
    if (isStale(flow)) stale.push(flow);
  });
  let deleted = 0;
  for (const flow of stale) {
    if (signal.aborted) break;
    try {
      await table.deleteUdpFlow(family, flow);
      deleted++;
    } catch (error) {
      errors.push(error);
    }
  }
  return { deleted, errors };
}
