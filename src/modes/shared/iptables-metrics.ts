/** The metrics of all modes that program iptables, under upstream's names (reference iptables-operation.md §14). */

import type { MetricFamilies } from "../../metrics/metric-families.ts";
import type { IpFamily } from "../../net/ip.ts";

/** Rejected writes of one IP family. */
export interface RestoreMetrics {
  /** Counts rejected and failed runs of iptables-restore, also during cleanup. */
  readonly restoreFailures: { inc(): void };
}

/** Rules of one IP family. */
export interface RuleCountMetrics {
  /** Sets the number of rules owned after a sync. */
  setTotal(table: "filter" | "nat", rules: number): void;
}

/** Defines the counter of rejected writes. @returns the function that makes the metrics of one IP family. */
export function defineRestoreMetrics(families: MetricFamilies): (family: IpFamily) => RestoreMetrics {
  const restoreFailures = families.familyCounter({
    name: "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
    help: "Cumulative proxy iptables restore failures",
  });
  return (family) => ({ restoreFailures: restoreFailures(family) });
}

/** Defines the gauge of rules. @returns the function that makes the metrics of one IP family. */
export function defineRuleCountMetrics(families: MetricFamilies): (family: IpFamily) => RuleCountMetrics {
  const total = families.gauge({
    name: "kubeproxy_sync_proxy_rules_iptables_total",
    help: "Total number of iptables rules owned by kube-proxy",
    labels: ["table", "ip_family"],
  });
  return (family) => ({ setTotal: (table, rules) => total.set({ table, ip_family: family }, rules) });
}
