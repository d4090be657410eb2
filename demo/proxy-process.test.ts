import assert from "node:assert/strict";
import { test } from "node:test";
import { lastSyncTimes } from "./proxy-process.ts";

test("the last sync of each family is read from the metrics text", () => {
  const metrics = `# HELP kubeproxy_sync_proxy_rules_last_timestamp_seconds x
# TYPE kubeproxy_sync_proxy_rules_last_timestamp_seconds gauge
kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 1.7000000005e+09
kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv6"} 1700000001.25
kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"} 5
`;
  assert.deepEqual(
    [...lastSyncTimes(metrics)],
    [
      ["IPv4", 1_700_000_000_500],
      ["IPv6", 1_700_000_001_250],
    ],
  );
  assert.equal(lastSyncTimes("connect ECONNREFUSED").size, 0);
});
