/** The measurements that all proxy modes share (reference health.md §16). */

import type { SyncMetrics } from "../../../contract/observers.ts";
import type { FamilyOptions, MetricFamilies } from "../../../metrics/metric-families.ts";
import type { IpFamily } from "../../../net/ip.ts";

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

type Rows<Key extends string> = Readonly<Record<Key, readonly [name: string, help: string]>>;

/** Histograms by IP family. */
const DURATIONS = {
  sync: ["sync_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds"],
  fullSync: ["sync_full_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for full resyncs"],
  partialSync: ["sync_partial_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for partial resyncs"],
  conntrackSync: ["conntrack_reconciler_sync_duration_seconds", "ReconcileConntrackFlowsLatency latency in seconds"],
} as const;

/** Gauges and counters of both IP families together. */
const GAUGES = {
  endpointsPending: ["sync_proxy_rules_endpoint_changes_pending", "Pending proxy rules Endpoint changes"],
  servicesPending: ["sync_proxy_rules_service_changes_pending", "Pending proxy rules Service changes"],
} as const;
const COUNTERS = {
  endpointsTotal: ["sync_proxy_rules_endpoint_changes_total", "Cumulative proxy rules Endpoint changes"],
  servicesTotal: ["sync_proxy_rules_service_changes_total", "Cumulative proxy rules Service changes"],
} as const;

/** Gauges by IP family, and counters whose series start at 0. */
const FAMILY_GAUGES = {
  lastSync: ["sync_proxy_rules_last_timestamp_seconds", "The last time proxy rules were successfully synced"],
  lastQueued: ["sync_proxy_rules_last_queued_timestamp_seconds", "The last time a sync of proxy rules was queued"],
} as const;
const FAMILY_COUNTERS = {
  deleted: ["conntrack_reconciler_deleted_entries_total", "Cumulative conntrack flows deleted by conntrack reconciler"],
  repaired: [
    "sync_proxy_rules_repairs_total",
    "Cumulative times that rules which other programs had changed were written again",
  ],
  costly: [
    "sync_proxy_rules_costly_services_total",
    "Cumulative times that a single Service took longer than a second to program",
  ],
  ended: [
    "conntrack_reconciler_ended_connections_total",
    "Cumulative TCP connections to endpoints that were gone, which were ended",
  ],
} as const;

/**
 * Defines the families and returns the function that makes the object of one IP family. Both IP families share
 * those without labels: in dual-stack, totals count twice and the pending gauges show whichever wrote last, as
 * upstream's do.
 */
export function defineSyncMetrics(families: MetricFamilies): (family: IpFamily) => SyncMetrics {
  const labels = ["ip_family"];
  const { sync, fullSync, partialSync, conntrackSync } = defined(DURATIONS, (options) =>
    families.histogram({ ...options, labels, buckets: DURATION_BUCKETS }),
  );
  const programming = families.histogram({
    name: "kubeproxy_network_programming_duration_seconds",
    help: "In Cluster Network Programming Latency in seconds",
    ...{ labels, buckets: PROGRAMMING_BUCKETS },
  });
  const { endpointsPending, servicesPending } = defined(GAUGES, families.gauge);
  const { endpointsTotal, servicesTotal } = defined(COUNTERS, families.counter);
  const { lastSync, lastQueued } = defined(FAMILY_GAUGES, (options) => families.gauge({ ...options, labels }));
  const counters = defined(FAMILY_COUNTERS, families.familyCounter);
  const noLocalEndpoints = families.gauge({
    name: "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
    help: "Number of services with a Local traffic policy and no endpoints",
    labels: ["traffic_policy", "ip_family"],
  });
  return (family) => {
    const labels = { ip_family: family };
    const deleted = counters.deleted(family);
    const repaired = counters.repaired(family);
    const costly = counters.costly(family);
    const ended = counters.ended(family);
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

/** Defines what the rows name. @returns what was made, by the rows' keys */
function defined<Key extends string, T>(rows: Rows<Key>, define: (options: FamilyOptions) => T): Record<Key, T> {
  const made = Object.entries<Rows<Key>[Key]>(rows).map(([key, [name, help]]) => [
    key,
    define({ name: `kubeproxy_${name}`, help }),
  ]);
  return Object.fromEntries(made);
}
