import assert from "node:assert/strict";
import { test } from "node:test";
import { createMetrics, type ProxyMetrics } from "../../agent/server/metrics/metrics.ts";
import { type Family, parseMetrics } from "../../agent/server/testing/metrics-text.ts";
import { silentLogger } from "../../logging/logger.ts";
import { defineNfacctMetrics } from "./metrics.ts";

async function scrape(metrics: ProxyMetrics): Promise<ReadonlyMap<string, Family>> {
  return parseMetrics(await metrics.families.render());
}

function only(families: ReadonlyMap<string, Family>, name: string): Family {
  const family = families.get(name);
  assert.ok(family !== undefined, `${name} is missing`);
  return family;
}

test("nfacct counters are read at each scrape and left out when they cannot be read", async () => {
  const metrics = createMetrics();
  const packets = new Map([["ct_state_invalid_dropped_pkts", 5]]);
  const failures: unknown[] = [];
  const log = { ...silentLogger, error: (_message: string, error: unknown) => failures.push(error) };
  const read = async (name: string) => {
    if (name === "localhost_nps_accepted_pkts") throw new Error("no such entry");
    return packets.get(name);
  };
  defineNfacctMetrics(metrics.families, read, log);
  const dropped = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total";
  const first = await scrape(metrics);
  assert.deepEqual(only(first, dropped), {
    type: "counter",
    help: "[ALPHA] packets dropped by iptables to work around conntrack problems",
    samples: [{ name: dropped, labels: {}, value: 5 }],
  });
  assert.equal(first.has("kubeproxy_iptables_localhost_nodeports_accepted_packets_total"), false);
  assert.equal(failures.length, 1);
  packets.set("ct_state_invalid_dropped_pkts", 8);
  assert.equal(only(await scrape(metrics), dropped).samples[0]?.value, 8);
  packets.clear();
  assert.equal((await scrape(metrics)).has(dropped), false);
});
