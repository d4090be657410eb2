import assert from "node:assert/strict";
import { test } from "node:test";
import { createMetrics } from "../../agent/server/metrics/metrics.ts";
import { parseMetrics } from "../../agent/server/testing/metrics-text.ts";
import { defineUserspaceMetrics } from "./metrics.ts";

test("the userspace mode counts connections, bytes, failed dials and clients sent away, by family and protocol", async () => {
  const metrics = createMetrics();
  const metricsOf = defineUserspaceMetrics(metrics.families);
  const ipv4 = metricsOf("IPv4");
  const ipv6 = metricsOf("IPv6");
  ipv4.opened("TCP");
  ipv4.opened("TCP");
  ipv4.closed("TCP");
  ipv4.bytes("TCP", "in", 10);
  ipv4.bytes("TCP", "in", 5);
  ipv4.bytes("TCP", "out", 7);
  ipv6.dialFailed("UDP");
  ipv6.refused("UDP");
  const families = parseMetrics(await metrics.families.render());
  const samples = (name: string) =>
    families
      .get(`kubeproxy_userspace_${name}`)
      ?.samples.map(({ labels, value }) => `${Object.values(labels).join(" ")} ${value}`);
  assert.deepEqual(samples("connections_total"), ["IPv4 tcp 2"]);
  assert.deepEqual(samples("active_connections"), ["IPv4 tcp 1"]);
  assert.deepEqual(samples("bytes_total"), ["IPv4 tcp in 15", "IPv4 tcp out 7"]);
  assert.deepEqual(samples("dial_failures_total"), ["IPv6 udp 1"]);
  assert.deepEqual(samples("refused_clients_total"), ["IPv6 udp 1"]);
});
