/** What kube-proxy serves under /metrics and /metrics/slis (reference operation.md §9.2, §12). */
import type { MetricFamily } from "./metrics-document.ts";

const SYNC = Array.from({ length: 15 }, (_, power) => 0.001 * 2 ** power);
const steps = (from: number, to: number, step: number) =>
  Array.from({ length: (to - from) / step + 1 }, (_, index) => from + index * step);
const PROGRAMMING = [0.25, 0.5, ...steps(1, 59, 1), ...steps(60, 115, 5), ...steps(120, 300, 30)];
const REQUEST = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60];
const SIZE = [64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216];
const AGE = [600, 1800, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000];

function family(type: string, name: string, labels = "", buckets: readonly number[] = []): MetricFamily {
  return { name, type, labels: labels === "" ? [] : labels.split(" ").sort(), buckets };
}
const counter = (name: string, labels?: string) => family("counter", name, labels);
const gauge = (name: string, labels?: string) => family("gauge", name, labels);
const histogram = (name: string, buckets: readonly number[], labels?: string) =>
  family("histogram", name, labels, buckets);

/** §12.1 */
const OWN = [
  histogram("sync_proxy_rules_duration_seconds", SYNC, "ip_family"),
  histogram("sync_full_proxy_rules_duration_seconds", SYNC, "ip_family"),
  histogram("sync_partial_proxy_rules_duration_seconds", SYNC, "ip_family"),
  gauge("sync_proxy_rules_last_timestamp_seconds", "ip_family"),
  gauge("sync_proxy_rules_last_queued_timestamp_seconds", "ip_family"),
  histogram("network_programming_duration_seconds", PROGRAMMING, "ip_family"),
  gauge("sync_proxy_rules_endpoint_changes_pending"),
  counter("sync_proxy_rules_endpoint_changes_total"),
  gauge("sync_proxy_rules_service_changes_pending"),
  counter("sync_proxy_rules_service_changes_total"),
  counter("proxy_healthz_total", "code"),
  counter("proxy_livez_total", "code"),
  gauge("sync_proxy_rules_no_local_endpoints_total", "traffic_policy ip_family"),
  counter("sync_proxy_rules_iptables_restore_failures_total", "ip_family"),
  counter("sync_proxy_rules_iptables_partial_restore_failures_total", "ip_family"),
  gauge("sync_proxy_rules_iptables_total", "table ip_family"),
  gauge("sync_proxy_rules_iptables_last", "table ip_family"),
  counter("sync_proxy_rules_nftables_sync_failures_total", "ip_family"),
  counter("sync_proxy_rules_nftables_cleanup_failures_total", "ip_family"),
  // On Windows, since v1.37.
  ...["create", "update", "delete"].map((verb) =>
    counter(`sync_proxy_rules_winkernel_lb_${verb}_failures_total`, "ip_family lb_type error"),
  ),
  histogram("conntrack_reconciler_sync_duration_seconds", SYNC, "ip_family"),
  counter("conntrack_reconciler_deleted_entries_total", "ip_family"),
  counter("iptables_ct_state_invalid_dropped_packets_total"),
  counter("iptables_localhost_nodeports_accepted_packets_total"),
  // Of node ports on loopback, since v1.37.
  gauge("nftables_localhost_nodeport_listeners", "ip_family"),
  counter("nftables_localhost_nodeport_listener_creation_failures_total", "ip_family"),
  counter("nftables_localhost_nodeport_rejected_packets_total", "ip_family protocol"),
].map((own) => ({ ...own, name: `kubeproxy_${own.name}` }));

/** §12.3 */
const SHARED = [
  gauge(
    "kubernetes_build_info",
    "major minor git_version git_commit git_tree_state build_date go_version compiler platform",
  ),
  gauge("kubernetes_feature_enabled", "name stage"),
  counter("registered_metrics_total", "stability_level deprecated_version"),
  counter("disabled_metrics_total"),
  counter("hidden_metrics_total"),
  counter("cardinality_enforcement_unexpected_categorizations_total"),
  histogram("rest_client_request_duration_seconds", REQUEST, "verb host"),
  histogram("rest_client_rate_limiter_duration_seconds", REQUEST, "verb host"),
  histogram("rest_client_request_size_bytes", SIZE, "verb host"),
  histogram("rest_client_response_size_bytes", SIZE, "verb host"),
  counter("rest_client_requests_total", "code method host"),
  counter("rest_client_request_retries_total", "code verb host"),
  gauge("rest_client_transport_cache_entries"),
  counter("rest_client_transport_create_calls_total", "result"),
  counter("rest_client_transport_ca_reload_total", "result reason"),
  counter("rest_client_transport_cert_rotation_gc_calls_total"),
  counter("rest_client_transport_cache_gc_calls_total", "result"),
  gauge("rest_client_exec_plugin_ttl_seconds"),
  histogram("rest_client_exec_plugin_certificate_rotation_age", AGE),
  counter("rest_client_exec_plugin_call_total", "code call_status"),
];

/** §12.4 */
const PROCESS = [
  counter("process_cpu_seconds_total"),
  gauge("process_resident_memory_bytes"),
  gauge("process_virtual_memory_bytes"),
  gauge("process_virtual_memory_max_bytes"),
  gauge("process_open_fds"),
  gauge("process_max_fds"),
  gauge("process_start_time_seconds"),
  counter("process_network_receive_bytes_total"),
  counter("process_network_transmit_bytes_total"),
];

/** Families under /metrics. */
export const UPSTREAM_FAMILIES: readonly MetricFamily[] = [...OWN, ...SHARED, ...PROCESS];

/** Groups of §12.3 and §12.4 of which the reference names only the beginning. */
export const UPSTREAM_GROUPS: readonly string[] = [
  "go_*",
  "workqueue_*",
  "leader_election_*",
  "informer_*",
  "version_info",
  "apiserver_*",
  "authentication_*",
];

/** §9.2 */
export const UPSTREAM_SLIS: readonly MetricFamily[] = [
  gauge("kubernetes_healthcheck", "name type"),
  counter("kubernetes_healthchecks_total", "name status type"),
  gauge("process_start_time_seconds"),
];
