/** The measurements that only the nftables mode makes (reference nftables.md §12). */
import type { IpFamily } from "../net/ip.ts";
import type { MetricFamilies } from "./metric-families.ts";

/** What the nftables mode reports for one family. */
export interface NftablesMetrics {
  /** Syncs of which the kernel refused something. */
  readonly syncFailures: { inc(): void };
  /** Refused deletions of what is not in use any more. */
  readonly cleanupFailures: { inc(): void };
}

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
