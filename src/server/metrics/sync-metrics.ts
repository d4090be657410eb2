/** The measurements that all proxy modes share (reference health.md §16). */

import type { MetricFamilies } from "../../metrics/metric-families.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { SyncMetrics } from "../../sync/observers.ts";

/** 0.001 s, doubled 14 times. */
const DURATION_BUCKETS: readonly number[] = Array.from({ length: 15 }, (_, power) => 0.001 * 2 ** power);

function range(from: number, to: number, step: number): number[] {
  return Array.from({ length: (to - from) / step + 1 }, (_, index) => from + index * step);
}

const PROGRAMMING_BUCKETS: readonly number[] = [
  0.25,
  0.5,
  ...range(1, 59, 1),
  ...range(60, 115, 5),
  ...range(120, 300, 30),
];

/**
 * Defines the families and returns the function that makes the object of one IP family. Both IP families share
 * those without labels: in dual-stack, totals count twice and the pending gauges show whichever wrote last, as
 * upstream's do.
 */
export function defineSyncMetrics(families: MetricFamilies): (family: IpFamily) => SyncMetrics {
  const perFamily = ["ip_family"];
  const duration = (name: string, help: string, buckets = DURATION_BUCKETS) =>
    families.histogram({ name: `kubeproxy_${name}`, help, labels: perFamily, buckets });
  const gauge = (name: string, help: string, labels: readonly string[] = []) =>
    families.gauge({ name: `kubeproxy_${name}`, help, labels });
  const counter = (name: string, help: string) => families.counter({ name: `kubeproxy_${name}`, help });
  const familyCounter = (name: string, help: string) => families.familyCounter({ name: `kubeproxy_${name}`, help });

  const sync = duration("sync_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds");
  const fullSync = duration(
    "sync_full_proxy_rules_duration_seconds",
    "SyncProxyRules latency in seconds for full resyncs",
  );
  const partialSync = duration(
    "sync_partial_proxy_rules_duration_seconds",
    "SyncProxyRules latency in seconds for partial resyncs",
  );
  const lastSync = gauge(
    "sync_proxy_rules_last_timestamp_seconds",
    "The last time proxy rules were successfully synced",
    perFamily,
  );
  const lastQueued = gauge(
    "sync_proxy_rules_last_queued_timestamp_seconds",
    "The last time a sync of proxy rules was queued",
    perFamily,
  );
  const programming = duration(
    "network_programming_duration_seconds",
    "In Cluster Network Programming Latency in seconds",
    PROGRAMMING_BUCKETS,
  );
  const endpointsPending = gauge("sync_proxy_rules_endpoint_changes_pending", "Pending proxy rules Endpoint changes");
  const endpointsTotal = counter("sync_proxy_rules_endpoint_changes_total", "Cumulative proxy rules Endpoint changes");
  const servicesPending = gauge("sync_proxy_rules_service_changes_pending", "Pending proxy rules Service changes");
  const servicesTotal = counter("sync_proxy_rules_service_changes_total", "Cumulative proxy rules Service changes");
  const noLocalEndpoints = gauge(
    "sync_proxy_rules_no_local_endpoints_total",
    "Number of services with a Local traffic policy and no endpoints",
    ["traffic_policy", "ip_family"],
  );
  const conntrackSync = duration(
    "conntrack_reconciler_sync_duration_seconds",
    "ReconcileConntrackFlowsLatency latency in seconds",
  );
  const conntrackDeleted = familyCounter(
    "conntrack_reconciler_deleted_entries_total",
    "Cumulative conntrack flows deleted by conntrack reconciler",
  );

  const repairs = familyCounter(
    "sync_proxy_rules_repairs_total",
    "Cumulative times that rules which other programs had changed were written again",
  );
  const costlyServices = familyCounter(
    "sync_proxy_rules_costly_services_total",
    "Cumulative times that a single Service took longer than a second to program",
  );

  const endedConnections = familyCounter(
    "conntrack_reconciler_ended_connections_total",
    "Cumulative TCP connections to endpoints that were gone, which were ended",
  );

  return (family) => {
    const labels = { ip_family: family };
    const deleted = conntrackDeleted(family);
    const repaired = repairs(family);
    const costly = costlyServices(family);
    const ended = endedConnections(family);
    return {
      observeSync(seconds, isFullSync) {
        sync.observe(labels, seconds);
        (isFullSync ? fullSync : partialSync).observe(labels, seconds);
      },
      setLastSync: (unixSeconds) => lastSync.set(labels, unixSeconds),
      setLastQueued: (unixSeconds) => lastQueued.set(labels, unixSeconds),
      observeNetworkProgramming: (seconds) => programming.observe(labels, seconds),
      countEndpointChange(isPending) {
        endpointsTotal.inc();
        if (isPending) endpointsPending.inc();
      },
      countServiceChange(pending) {
        servicesTotal.inc();
        servicesPending.set(pending);
      },
      resetPending() {
        servicesPending.set(0);
        endpointsPending.set(0);
      },
      setNoLocalEndpoints(internal, external) {
        noLocalEndpoints.set({ traffic_policy: "internal", ip_family: family }, internal);
        noLocalEndpoints.set({ traffic_policy: "external", ip_family: family }, external);
      },
      observeConntrackCleanup(seconds, count) {
        conntrackSync.observe(labels, seconds);
        deleted.inc(count);
      },
      countRepair: () => repaired.inc(),
      countCostlyService: () => costly.inc(),
      countEndedConnections: (count) => ended.inc(count),
    };
  };
}
