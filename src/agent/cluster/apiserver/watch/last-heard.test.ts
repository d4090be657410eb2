import assert from "node:assert/strict";
import { test } from "node:test";
import { createFamilies } from "../../../../metrics/metric-families.ts";
import { parseMetrics } from "../../../server/testing/metrics-text.ts";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { createLastHeard } from "../api-source.ts";

test("the time at which a resource was last heard of is the start's, until it has been", async () => {
  const families = createFamilies();
  const clock = new FakeClock(1_700_000_000_000);
  const onHeard = createLastHeard(families, clock, ["services", "nodes"]);
  await clock.advance(5_000);
  onHeard("services");
  await clock.advance(5_000);
  const family = parseMetrics(await families.render()).get("kubeproxy_ts_source_last_heard_timestamp_seconds");
  assert.deepEqual(
    family?.samples.map(({ labels, value }) => [labels.resource, value]),
    [
      ["services", 1_700_000_005],
      ["nodes", 1_700_000_000],
    ],
  );
});
