/**
 * Ends the UDP flows that conntrack still sends to endpoints which no longer serve, and those of frontends that are gone: reference sync.md §13.2, driven
 * over the connection tracking table. What is stale is decided in `model/stale-udp-flows.ts`.
 */

import type { ConntrackTable } from "../kernel/conntrack/conntrack.ts";
import type { Endpoint } from "../model/endpoint.ts";
import type { ServicePort } from "../model/service-port.ts";
import { staleFlowTest, type UdpFrontends } from "../model/stale-udp-flows.ts";
import type { IpAddress, IpFamily } from "../net/ip.ts";
import type { UdpFlow } from "../net/udp-flow.ts";

/** Part of `ProxyState`: what the rules that are in the kernel now were made of. */
interface ServedUdp {
  readonly udpServices: ReadonlyMap<string, ServicePort>;
  readonly udpFrontends: UdpFrontends;
  readonly endpoints: ReadonlyMap<string, readonly Endpoint[]>;
}

interface CleanedFlows {
  /** Flows that are gone now, those that ended by themselves meanwhile included. */
  readonly deleted: number;
  /** Why flows could not be deleted, one entry for each. */
  readonly errors: readonly unknown[];
}

const NO_ADDRESSES: ReadonlySet<IpAddress> = new Set();

/**
 * Looks through the table and deletes the stale flows. Rejects when the table cannot be read; a flow that cannot be
 * deleted does not keep the others. Where no flow could be stale, the table is not even read. An abort ends the work between
 * two deletions.
 *
 * @param gone UDP frontends that service ports do not own any more, as `frontendKey` writes them.
 * @param own addresses of the node. @default none is known
 */
export async function deleteStaleUdpFlows(
  table: ConntrackTable,
  family: IpFamily,
  served: ServedUdp,
  gone: ReadonlySet<string>,
  signal: AbortSignal,
  own: ReadonlySet<IpAddress> = NO_ADDRESSES,
): Promise<CleanedFlows> {
  const errors: unknown[] = [];
  if (served.udpServices.size + gone.size === 0) return { deleted: 0, errors };
  const isStale = staleFlowTest(served.udpFrontends, served.endpoints, gone, own);
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
