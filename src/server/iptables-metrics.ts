/** The measurements that only the iptables mode makes (reference iptables.md §14). */
import type { Logger } from "../logging/logger.ts";
import type { IpFamily } from "../net/ip.ts";
import type { MetricFamilies } from "./metric-families.ts";

/** The tables whose rules are counted. */
export type CountedTable = "filter" | "nat";

/** What the iptables mode reports for one family. */
export interface IptablesMetrics {
  /** A failed iptables-restore, also during cleanup. */
  readonly restoreFailures: { inc(): void };
  /** A failed partial sync. */
  readonly partialRestoreFailures: { inc(): void };
  /** Rules owned after this sync. */
  setTotal(table: CountedTable, rules: number): void;
  /** Rules written by the last sync. */
  setLast(table: CountedTable, rules: number): void;
}

/** Packet count of an nfacct object; `undefined` or a rejection when it cannot be read. */
export type ReadNfacct = (objectName: string) => number | undefined | Promise<number | undefined>;

/** nfacct object → family and help; names are those of reference server.md §12.1. */
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

/** Defines the families and gives the function that makes the object of one IP family. */
export function defineIptablesMetrics(families: MetricFamilies): (family: IpFamily) => IptablesMetrics {
  const restoreFailures = families.counter({
    name: "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
    help: "Cumulative proxy iptables restore failures",
    labels: ["ip_family"],
  });
  const partialRestoreFailures = families.counter({
    name: "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
    help: "Cumulative proxy iptables partial restore failures",
    labels: ["ip_family"],
  });
  const total = families.gauge({
    name: "kubeproxy_sync_proxy_rules_iptables_total",
    help: "Total number of iptables rules owned by kube-proxy",
    labels: ["table", "ip_family"],
  });
  const last = families.gauge({
    name: "kubeproxy_sync_proxy_rules_iptables_last",
    help: "Number of iptables rules written by kube-proxy in last sync",
    labels: ["table", "ip_family"],
  });
  return (family) => ({
    restoreFailures: { inc: () => restoreFailures.inc({ ip_family: family }) },
    partialRestoreFailures: { inc: () => partialRestoreFailures.inc({ ip_family: family }) },
    setTotal: (table, rules) => total.set({ table, ip_family: family }, rules),
    setLast: (table, rules) => last.set({ table, ip_family: family }, rules),
  });
}

/** Defines the packet counters; call only when the kernel has nfacct. A counter that cannot be read is logged and left out. */
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
