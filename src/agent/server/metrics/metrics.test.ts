import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { silentLogger } from "../../../logging/logger.ts";
import { defineIptablesMetrics, defineNfacctMetrics } from "../../../modes/iptables/metrics.ts";
import { type Family, parseMetrics } from "../testing/metrics-text.ts";
import { createMetrics, type ProxyMetrics } from "./metrics.ts";

async function scrape(metrics: ProxyMetrics): Promise<ReadonlyMap<string, Family>> {
  return parseMetrics(await metrics.families.render());
}

function only(families: ReadonlyMap<string, Family>, name: string): Family {
  const family = families.get(name);
  assert.ok(family !== undefined, `${name} is missing`);
  return family;
}

/** Uses every instrument once. */
function useAll(metrics: ProxyMetrics): void {
  const sync = metrics.syncMetrics("IPv4");
  sync.observeSync(0.003, true);
  sync.observeSync(0.2, false);
  sync.setLastSync(1_700_000_000.5);
  sync.setLastQueued(1_700_000_001);
  sync.observeNetworkProgramming(61);
  sync.countEndpointChange(true);
  sync.countServiceChange(4);
  sync.setNoLocalEndpoints(1, 2);
  sync.observeConntrackCleanup(0.01, 3);
  sync.countRepair();
  sync.countCostlyService();
  sync.countEndedConnections(2);
  const iptables = defineIptablesMetrics(metrics.families)("IPv6");
  iptables.restoreFailures.inc();
  iptables.partialRestoreFailures.inc();
  iptables.setTotal("nat", 120);
  iptables.setLast("filter", 7);
  metrics.countHealthz(503);
  metrics.countLivez(200);
}

const EXPECTED: readonly [name: string, type: string, help: string][] = [
  ["sync_proxy_rules_duration_seconds", "histogram", "SyncProxyRules latency in seconds"],
  ["sync_full_proxy_rules_duration_seconds", "histogram", "SyncProxyRules latency in seconds for full resyncs"],
  ["sync_partial_proxy_rules_duration_seconds", "histogram", "SyncProxyRules latency in seconds for partial resyncs"],
  ["sync_proxy_rules_last_timestamp_seconds", "gauge", "The last time proxy rules were successfully synced"],
  ["sync_proxy_rules_last_queued_timestamp_seconds", "gauge", "The last time a sync of proxy rules was queued"],
  ["network_programming_duration_seconds", "histogram", "In Cluster Network Programming Latency in seconds"],
  ["sync_proxy_rules_endpoint_changes_pending", "gauge", "Pending proxy rules Endpoint changes"],
  ["sync_proxy_rules_endpoint_changes_total", "counter", "Cumulative proxy rules Endpoint changes"],
  ["sync_proxy_rules_service_changes_pending", "gauge", "Pending proxy rules Service changes"],
  ["sync_proxy_rules_service_changes_total", "counter", "Cumulative proxy rules Service changes"],
  [
    "sync_proxy_rules_no_local_endpoints_total",
    "gauge",
    "Number of services with a Local traffic policy and no endpoints",
  ],
  [
    "sync_proxy_rules_costly_services_total",
    "counter",
    "Cumulative times that a single Service took longer than a second to program",
  ],
  [
    "conntrack_reconciler_ended_connections_total",
    "counter",
    "Cumulative TCP connections to endpoints that were gone, which were ended",
  ],
  [
    "sync_proxy_rules_repairs_total",
    "counter",
    "Cumulative times that rules which other programs had changed were written again",
  ],
  ["proxy_healthz_total", "counter", "Cumulative proxy healthz HTTP status"],
  ["proxy_livez_total", "counter", "Cumulative proxy livez HTTP status"],
  ["conntrack_reconciler_sync_duration_seconds", "histogram", "ReconcileConntrackFlowsLatency latency in seconds"],
  [
    "conntrack_reconciler_deleted_entries_total",
    "counter",
    "Cumulative conntrack flows deleted by conntrack reconciler",
  ],
  ["sync_proxy_rules_iptables_restore_failures_total", "counter", "Cumulative proxy iptables restore failures"],
  [
    "sync_proxy_rules_iptables_partial_restore_failures_total",
    "counter",
    "Cumulative proxy iptables partial restore failures",
  ],
  ["sync_proxy_rules_iptables_total", "gauge", "Total number of iptables rules owned by kube-proxy"],
  ["sync_proxy_rules_iptables_last", "gauge", "Number of iptables rules written by kube-proxy in last sync"],
];

test("every kubeproxy_ family has upstream's name, type and help, and there are no others", async () => {
  const metrics = createMetrics();
  useAll(metrics);
  const families = await scrape(metrics);
  const ours = [...families].filter(([name]) => name.startsWith("kubeproxy_"));
  assert.deepEqual(
    ours.map(([name, { type, help }]) => [name, type, help]),
    EXPECTED.map(([name, type, help]) => [`kubeproxy_${name}`, type, `[ALPHA] ${help}`]).sort(([a = ""], [b = ""]) =>
      a < b ? -1 : 1,
    ),
  );
});

test("counters of an IP family are at 0 once the family is at work: increase() loses the first step of a series", async () => {
  const metrics = createMetrics();
  const { countRepair } = metrics.syncMetrics("IPv6");
  const samples = async () => {
    const family = (await scrape(metrics)).get("kubeproxy_sync_proxy_rules_repairs_total");
    return family?.samples.map(({ labels, value }) => [labels.ip_family, value]);
  };
  assert.deepEqual(await samples(), [["IPv6", 0]]);
  countRepair();
  assert.deepEqual(await samples(), [["IPv6", 1]]);
});

test("unlabelled families are there at 0 from the start, labelled ones only once used", async () => {
  const families = await scrape(createMetrics());
  const names = [...families.keys()].filter((name) => name.startsWith("kubeproxy_"));
  assert.deepEqual(names, [
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
    "kubeproxy_sync_proxy_rules_endpoint_changes_total",
    "kubeproxy_sync_proxy_rules_service_changes_pending",
    "kubeproxy_sync_proxy_rules_service_changes_total",
  ]);
  for (const name of names) assert.deepEqual(only(families, name).samples, [{ name, labels: {}, value: 0 }]);
});

test("values carry upstream's labels", async () => {
  const metrics = createMetrics();
  useAll(metrics);
  const families = await scrape(metrics);
  const series = (name: string) =>
    only(families, `kubeproxy_${name}`).samples.map(({ labels, value }) => [labels, value]);
  assert.deepEqual(series("sync_proxy_rules_last_timestamp_seconds"), [[{ ip_family: "IPv4" }, 1_700_000_000.5]]);
  assert.deepEqual(series("sync_proxy_rules_no_local_endpoints_total"), [
    [{ traffic_policy: "internal", ip_family: "IPv4" }, 1],
    [{ traffic_policy: "external", ip_family: "IPv4" }, 2],
  ]);
  assert.deepEqual(series("sync_proxy_rules_iptables_total"), [[{ table: "nat", ip_family: "IPv6" }, 120]]);
  assert.deepEqual(series("sync_proxy_rules_iptables_last"), [[{ table: "filter", ip_family: "IPv6" }, 7]]);
  assert.deepEqual(series("conntrack_reconciler_deleted_entries_total"), [[{ ip_family: "IPv4" }, 3]]);
  assert.deepEqual(series("proxy_healthz_total"), [[{ code: "503" }, 1]]);
});

function bucketsOf(family: Family): string[] {
  return family.samples.flatMap(({ labels }) => labels.le ?? []);
}

test("duration histograms have 0.001 doubled fourteen times, and count full and partial syncs apart", async () => {
  const metrics = createMetrics();
  useAll(metrics);
  const families = await scrape(metrics);
  const doubling = "0.001 0.002 0.004 0.008 0.016 0.032 0.064 0.128 0.256 0.512 1.024 2.048 4.096 8.192 16.384 +Inf";
  for (const kind of ["sync", "sync_full", "sync_partial"]) {
    const family = only(families, `kubeproxy_${kind}_proxy_rules_duration_seconds`);
    assert.deepEqual(bucketsOf(family), doubling.split(" "));
    assert.equal(family.samples.at(-1)?.value, kind === "sync" ? 2 : 1);
  }
});

test("programming latency has upstream's buckets and counts cumulatively", async () => {
  const metrics = createMetrics();
  useAll(metrics);
  const family = only(await scrape(metrics), "kubeproxy_network_programming_duration_seconds");
  const buckets = bucketsOf(family);
  assert.deepEqual(buckets.slice(0, 4), ["0.25", "0.5", "1", "2"]);
  assert.deepEqual(
    buckets.slice(59),
    "58 59 60 65 70 75 80 85 90 95 100 105 110 115 120 150 180 210 240 270 300 +Inf".split(" "),
  );
  const count = (le: string) => family.samples.find(({ labels }) => labels.le === le)?.value;
  assert.deepEqual([count("60"), count("65"), count("+Inf")], [0, 1, 1]);
});

test("both families share the unlabelled totals", async () => {
  const metrics = createMetrics();
  for (const family of ["IPv4", "IPv6"] as const) {
    const sync = metrics.syncMetrics(family);
    sync.countEndpointChange(true);
    sync.countServiceChange(0);
  }
  metrics.syncMetrics("IPv4").resetPending();
  const families = await scrape(metrics);
  assert.equal(only(families, "kubeproxy_sync_proxy_rules_service_changes_total").samples[0]?.value, 2);
  assert.equal(only(families, "kubeproxy_sync_proxy_rules_endpoint_changes_pending").samples[0]?.value, 0);
});

test("build info and feature gates are gauges with their labels", async () => {
  const metrics = createMetrics();
  const program = { version: "1.2.3", commit: "def", node: "v24.21.0", mode: "nftables" };
  const release = {
    major: "1",
    minor: "36",
    git_version: "v1.36.2",
    git_commit: "abc",
    git_tree_state: "clean",
    build_date: "2026-01-01T00:00:00Z",
    go_version: "node24.21.0",
    compiler: "v8",
    platform: "linux/amd64",
  };
  metrics.setBuildInfo(release, program);
  metrics.setFeatures([
    { name: "NFTablesProxyMode", stage: "GA", enabled: true },
    { name: "NativeHistograms", stage: "Alpha", enabled: false },
  ]);
  const families = await scrape(metrics);
  const [build] = only(families, "kubernetes_build_info").samples;
  assert.equal(build?.value, 1);
  assert.equal(build?.labels.git_version, "v1.36.2");
  assert.equal(build?.labels.go_version, "node24.21.0");
  assert.match(build?.labels.platform ?? "", /^linux\/(amd64|arm64)$/);
  assert.deepEqual(
    only(families, "kubeproxy_ts_build_info").samples.map(({ labels, value }) => [labels, value]),
    [[program, 1]],
  );
  assert.deepEqual(
    only(families, "kubernetes_feature_enabled").samples.map(({ labels, value }) => [labels, value]),
    [
      [{ name: "NFTablesProxyMode", stage: "" }, 1],
      [{ name: "NativeHistograms", stage: "ALPHA" }, 0],
    ],
  );
});

test("the process and its runtime are described", async () => {
  const families = await scrape(createMetrics());
  const value = (name: string) => only(families, name).samples[0]?.value ?? Number.NaN;
  assert.ok(Math.abs(value("process_start_time_seconds") - (Date.now() / 1000 - process.uptime())) < 1);
  assert.ok(value("process_resident_memory_bytes") > 1e7);
  assert.ok(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
  assert.ok(value("process_cpu_seconds_total") > 0);
  assert.ok(value("process_open_fds") > 2);
  assert.ok(value("process_max_fds") > 2);
  assert.ok(value("process_network_receive_bytes_total") >= 0);
  assert.ok(value("process_network_transmit_bytes_total") >= 0);
  assert.ok(value("nodejs_heap_size_used_bytes") > 1e6);
  assert.ok(value("nodejs_eventloop_lag_seconds") >= 0);
  const cpu = only(families, "process_cpu_seconds_total");
  assert.equal(cpu.type, "counter");
  assert.doesNotMatch(cpu.help, /^\[/);
});

test("garbage collections are counted by kind", async () => {
  const metrics = createMetrics();
  setFlagsFromString("--expose-gc");
  runInNewContext("gc()");
  // The event loop notifies the observer a turn or two later.
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
  const family = only(await scrape(metrics), "nodejs_gc_duration_seconds");
  const major = family.samples.find(({ name, labels }) => name.endsWith("_count") && labels.kind === "major");
  assert.ok((major?.value ?? 0) >= 1);
});

test("registered_metrics_total counts definitions by stability, later ones too", async () => {
  const metrics = createMetrics();
  useAll(metrics);
  const alpha = async () => {
    const { samples } = only(await scrape(metrics), "registered_metrics_total");
    return samples.find(({ labels }) => labels.stability_level === "ALPHA")?.value;
  };
  const before = (await alpha()) ?? 0;
  // The proxy's own, and the one that counts label values.
  assert.equal(before, EXPECTED.length + 1);
  defineNfacctMetrics(metrics.families, () => 0, silentLogger);
  assert.equal(await alpha(), before + 2);
});
