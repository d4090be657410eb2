/** The measurements that only the nftables mode makes (reference nftables-operation.md §12). */

import type { IpFamily } from "../../net/ip.ts";
import type { MetricFamilies } from "../../server/metrics/metric-families.ts";
import type { NftablesMetrics } from "./backend.ts";

/** Defines the families and gives the function that makes the object of one IP family. */
export function defineNftablesMetrics(families: MetricFamilies): (family: IpFamily) => NftablesMetrics {
  const counter = (what: "sync" | "cleanup") =>
    families.counter({
      name: `kubeproxy_sync_proxy_rules_nftables_${what}_failures_total`,
      help: `Cumulative proxy nftables ${what} failures`,
      labels: ["ip_family"],
    });
  const syncFailures = counter("sync");
  const cleanupFailures = counter("cleanup");
  return (family) => ({
    syncFailures: { inc: () => syncFailures.inc({ ip_family: family }) },
    cleanupFailures: { inc: () => cleanupFailures.inc({ ip_family: family }) },
  });
}
