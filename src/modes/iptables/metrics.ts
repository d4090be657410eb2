/** Metrics of the iptables mode (reference iptables-operation.md §14). */

import type { Logger } from "../../logging/logger.ts";
import type { MetricFamilies } from "../../metrics/metric-families.ts";
import type { IpFamily } from "../../net/ip.ts";
import { defineRestoreMetrics, defineRuleCountMetrics } from "../shared/iptables-metrics.ts";
import type { IptablesMetrics } from "./backend.ts";

/** Packet count of an nfacct object; resolves to undefined or rejects if it cannot be read. */
type ReadNfacct = (objectName: string) => number | undefined | Promise<number | undefined>;

/** nfacct object → family and help; names as in reference operation.md §12.1. */
const NFACCT_FAMILIES = [
  {
    object: "ct_state_invalid_dropped_pkts",
    name: "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
    help: "packets dropped by iptables to work around conntrack problems",
  },
  {
    object: "localhost_nps_accepted_pkts",
    name: "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
    help: "Number of packets accepted on nodeports of loopback interface",
  },
] as const;

/** Defines the families and returns the function that creates the metrics of one IP family. */
export function defineIptablesMetrics(families: MetricFamilies): (family: IpFamily) => IptablesMetrics {
  const restoreMetrics = defineRestoreMetrics(families);
  const partialRestoreFailures = families.familyCounter({
    name: "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
    help: "Cumulative proxy iptables partial restore failures",
  });
  const ruleCountMetrics = defineRuleCountMetrics(families);
  const last = families.gauge({
    name: "kubeproxy_sync_proxy_rules_iptables_last",
    help: "Number of iptables rules written by kube-proxy in last sync",
    labels: ["table", "ip_family"],
  });
  return (family) => ({
    ...restoreMetrics(family),
    partialRestoreFailures: partialRestoreFailures(family),
    ...ruleCountMetrics(family),
    setLast: (table, rules) => last.set({ table, ip_family: family }, rules),
  });
}

/** Defines the packet counters; only for kernels with nfacct. A counter that cannot be read is logged and omitted. */
export function defineNfacctMetrics(families: MetricFamilies, read: ReadNfacct, log: Logger): void {
  for (const { object, name, help } of NFACCT_FAMILIES) {
    families.scraped("counter", { name, help }, async () => {
      try {
        return await read(object);
      } catch (error) {
        log.error("failed to collect nfacct counter", error, { counter: object });
        return undefined;
      }
    });
  }
}
