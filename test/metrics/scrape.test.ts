/** What a running daemon serves, in three modes and with an API server, against docs/metrics.md. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Family, parseMetrics } from "../../src/agent/server/testing/metrics-text.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { startApiDaemon, startClusterServer } from "../apiserver/api-daemon.ts";
import { CONFIG_CONF } from "../apiserver/kubeadm-files.ts";
import { type DocumentedFamily, readMetricsDocument } from "./metrics-document.ts";

const document = readMetricsDocument();
const HEALTH = "http://127.0.0.1:10256";
const METRICS = "http://127.0.0.1:10249";
/** Not there when the kernel has no nfacct, or when there is no limit. */
const MAY_BE_MISSING = /^(kubeproxy_iptables_|process_virtual_memory_max_bytes$)/;

async function get(url: string): Promise<string> {
  return await (await fetch(url)).text();
}

/** Checks one family as a scraper would take it. */
function checkFamily(name: string, { type, help, samples }: Family, documented: DocumentedFamily): void {
  assert.equal(type, documented.type, name);
  assert.ok(help.length > 0, name);
  for (const { labels, value } of samples) {
    const names = Object.keys(labels).filter((label) => label !== "le");
    assert.deepEqual(names.sort(), documented.labels, name);
    assert.ok(!Number.isNaN(value), name);
    if (type !== "gauge") assert.ok(value >= 0, name);
  }
  if (type === "histogram") checkHistogram(name, samples, documented.buckets);
}

function checkHistogram(name: string, samples: Family["samples"], buckets: readonly number[]): void {
  const series = new Map<string, { bounds: number[]; counts: number[]; count: number | undefined }>();
  for (const { name: sample, labels, value } of samples) {
    const { le, ...own } = labels;
    const key = JSON.stringify(own);
    const { bounds, counts, count } = series.get(key) ?? { bounds: [], counts: [], count: undefined };
    if (le !== undefined) {
      bounds.push(le === "+Inf" ? Number.POSITIVE_INFINITY : Number(le));
      counts.push(value);
    }
    series.set(key, { bounds, counts, count: sample.endsWith("_count") ? value : count });
  }
  for (const { bounds, counts, count } of series.values()) {
    assert.deepEqual(bounds, [...buckets, Number.POSITIVE_INFINITY], name);
    assert.deepEqual(
      counts,
      counts.toSorted((one, other) => one - other),
      name,
    );
    assert.equal(counts.at(-1), count, name);
  }
}

inNetns(import.meta.url, { name: "scrape", timeoutMs: 120_000 }, () => {
  for (const mode of ["iptables", "nftables", "userspace"]) {
    test(`a daemon in the ${mode} mode serves what the document says`, async (t) => {
      const server = await startClusterServer(t);
      const daemon = startApiDaemon(t, server, { config: CONFIG_CONF.replace('mode: ""', `mode: ${mode}`) });
      await daemon.synced();
      for (const path of ["/healthz", "/livez"]) await get(HEALTH + path);
      // The page that `synced` saw may be served for another 100 ms.
      let families = parseMetrics(await get(`${METRICS}/metrics`));
      await daemon.until("a page made after the health checks", async () => {
        families = parseMetrics(await get(`${METRICS}/metrics`));
        return families.has("kubeproxy_proxy_livez_total");
      });
      const documented = new Map(document.families.map((family) => [family.name, family]));
      const isHere = ({ where, name }: DocumentedFamily) =>
        where.split(", ").some((place) => ["all", mode, "API server"].includes(place)) ||
        (where === "nfacct" && mode === "iptables" && families.has(name));
      for (const [name, family] of families) {
        const row = documented.get(name);
        assert.ok(row !== undefined && isHere(row), `${name} is not in the document for this mode`);
        checkFamily(name, family, row);
      }
      const missing = document.families.filter((family) => {
        return isHere(family) && family.labels.length === 0 && !families.has(family.name);
      });
      assert.deepEqual(
        missing.map(({ name }) => name).filter((name) => !MAY_BE_MISSING.test(name)),
        [],
      );
      for (const name of [
        "kubeproxy_sync_proxy_rules_duration_seconds",
        "kubeproxy_sync_full_proxy_rules_duration_seconds",
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
        "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
        "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
        "kubeproxy_proxy_healthz_total",
        "kubeproxy_proxy_livez_total",
        "kubernetes_build_info",
        "kubernetes_feature_enabled",
        "rest_client_requests_total",
        "rest_client_request_duration_seconds",
        ...(mode === "nftables" ? [] : ["kubeproxy_sync_proxy_rules_iptables_total"]),
      ]) {
        assert.ok(families.has(name), `${name} is missing`);
      }
    });
  }

  test("the health check of the metrics port serves what the document says", async (t) => {
    const daemon = startApiDaemon(t, await startClusterServer(t));
    await daemon.synced();
    await get(`${METRICS}/healthz`);
    const families = parseMetrics(await get(`${METRICS}/metrics/slis`));
    assert.deepEqual([...families.keys()].sort(), document.slis.map(({ name }) => name).sort());
    for (const row of document.slis) {
      const family = families.get(row.name);
      assert.ok(family !== undefined);
      checkFamily(row.name, family, row);
    }
  });
});
