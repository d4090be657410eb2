/** The metrics that only the nftables mode has (reference nftables-operation.md §12). */

import type { MetricFamilies } from "../../metrics/metric-families.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { Protocol } from "../../net/protocol.ts";
import type { LocalhostMetrics } from "./localhost-relay.ts";

/** The metrics of one IP family. */
export interface NftablesMetrics {
  /** Counts syncs of which the kernel rejected a part. */
  readonly syncFailures: { inc(): void };
  /** Counts rejected deletions of stale objects. */
  readonly cleanupFailures: { inc(): void };
}

/** Defines the metric families. @returns the function that makes the metrics of one IP family. */
export function defineNftablesMetrics(families: MetricFamilies): (family: IpFamily) => NftablesMetrics {
  const counter = (what: "sync" | "cleanup") =>
    families.familyCounter({
      name: `kubeproxy_sync_proxy_rules_nftables_${what}_failures_total`,
      help: `Cumulative proxy nftables ${what} failures`,
    });
  const syncFailures = counter("sync");
  const cleanupFailures = counter("cleanup");
  return (family) => ({ syncFailures: syncFailures(family), cleanupFailures: cleanupFailures(family) });
}

/** Defines the metrics of node ports on loopback addresses. @param rejected reads the packets of each counter. */
export function defineLocalhostMetrics(
  families: MetricFamilies,
  rejected: () => Promise<
    readonly { readonly family: IpFamily; readonly protocol: Protocol; readonly packets: number }[]
  >,
): (family: IpFamily) => LocalhostMetrics {
  const name = (what: string) => `kubeproxy_nftables_localhost_nodeport_${what}`;
  const labels = ["ip_family"];
  const listeners = families.gauge({
    name: name("listeners"),
    help: "Number of active localhost NodePort userspace proxy listeners.",
    labels,
  });
  const failures = families.counter({
    name: name("listener_creation_failures_total"),
    help: "Number of localhost NodePort userspace proxy listener creation failures.",
    labels,
  });
  families.scrapedSamples(
    {
      name: name("rejected_packets_total"),
      help: "Number of packets rejected on localhost NodePorts. UDP and SCTP are always rejected; TCP is rejected when the localhost NodePort proxy is not running",
      labels: [...labels, "protocol"],
    },
    async () =>
      (await rejected()).map(({ family, protocol, packets }) => ({
        labels: { ip_family: family, protocol },
        value: packets,
      })),
  );
  return (family) => ({
    listeners: { set: (count) => listeners.set({ ip_family: family }, count) },
    creationFailures: { inc: () => failures.inc({ ip_family: family }) },
  });
}
