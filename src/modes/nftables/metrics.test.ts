import assert from "node:assert/strict";
import { test } from "node:test";
import { createMetrics } from "../../agent/server/metrics/metrics.ts";
import { parseMetrics } from "../../agent/server/testing/metrics-text.ts";
import { defineNftablesMetrics } from "./metrics.ts";

test("the nftables mode counts refused syncs and deletions under upstream's names, and has no families of iptables", async () => {
  const metrics = createMetrics();
  const metricsOf = defineNftablesMetrics(metrics.families);
  const ipv4 = metricsOf("IPv4");
  const ipv6 = metricsOf("IPv6");
  ipv4.syncFailures.inc();
  ipv6.syncFailures.inc();
  ipv6.syncFailures.inc();
  ipv6.cleanupFailures.inc();
  const families = parseMetrics(await metrics.families.render());
  const of = (name: string) => {
    const family = families.get(`kubeproxy_sync_proxy_rules_nftables_${name}`);
    return [family?.type, family?.help, family?.samples.map(({ labels, value }) => [labels.ip_family, value])];
  };
  assert.deepEqual(of("sync_failures_total"), [
    "counter",
    "[ALPHA] Cumulative proxy nftables sync failures",
    [
      ["IPv4", 1],
      ["IPv6", 2],
    ],
  ]);
  assert.deepEqual(of("cleanup_failures_total"), [
    "counter",
    "[ALPHA] Cumulative proxy nftables cleanup failures",
    [
      ["IPv4", 0],
      ["IPv6", 1],
    ],
  ]);
  assert.deepEqual(
    [...families.keys()].filter((name) => name.includes("iptables")),
    [],
  );
});
