/** Leftovers of the iptables mode are removed, even if the first attempt fails. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { silentLogger } from "../../logging/logger.ts";
import { ip } from "../../model/testing/records.ts";
import { IptablesBackend } from "../iptables/backend.ts";
import { CONFIG } from "../iptables/testing/backend-bench.ts";
import { newModel, VERIFY_PERIOD_MS } from "./testing/backend-rig.ts";

const LATE = port("late", "10.96.0.2");

/** A node where the iptables mode rejects traffic to a Service without endpoints. */
async function afterIptablesMode() {
  const model = newModel();
  const { rig } = model;
  model.set(port("plain", "10.96.0.1", { externalIPs: [ip("198.51.100.1")] }), [remote("10.1.1.5")]);
  model.set(LATE, []);
  const nothing = { inc: () => {} };
  const before = new IptablesBackend({
    config: CONFIG,
    iptables: rig.node.iptables,
    counters: undefined,
    nodePortIPs: async () => ({ kind: "all" }),
    metrics: { restoreFailures: nothing, partialRestoreFailures: nothing, setTotal: () => {}, setLast: () => {} },
    monitor: async () => {},
    log: silentLogger,
  });
  await model.driver.syncOther(before);
  assert.match(await rig.node.iptables.save("filter"), /-A KUBE-SERVICES -d 10\.96\.0\.2.* -j REJECT/);
  return model;
}

test("the lock is held while leftovers are removed: the refusals of the iptables mode are gone a little later", async (t) => {
  const model = await afterIptablesMode();
  const { rig } = model;
  t.after(() => rig.close());
  const { iptables } = rig.node;
  const deleteRule = iptables.deleteRule.bind(iptables);
  // Locked from the first deletion of leftovers until the sync has ended.
  iptables.deleteRule = async (...args) => {
    iptables.isLocked = true;
    await deleteRule(...args);
  };
  await rig.sync();
  iptables.isLocked = false;
  iptables.deleteRule = deleteRule;
  rig.watch();
  model.setEndpoints(LATE, [remote("10.1.1.6")]);
  for (let n = 0; n < 5; n += 1) {
    await rig.sync({ full: true });
    await rig.clock.advance(VERIFY_PERIOD_MS);
  }
  assert.doesNotMatch(await iptables.save("filter"), /10\.96\.0\.2.* -j REJECT/);
});

test("one thing of another service stays refused: the refusals of the iptables mode are gone all the same", async (t) => {
  const model = await afterIptablesMode();
  const { rig } = model;
  t.after(() => rig.close());
  rig.node.links.refuse(({ address }) => (address === "198.51.100.1" ? "EACCES" : undefined));
  await rig.sync();
  model.setEndpoints(LATE, [remote("10.1.1.6")]);
  for (let n = 0; n < 5; n += 1) await rig.sync({ full: true });
  assert.doesNotMatch(await rig.node.iptables.save("filter"), /10\.96\.0\.2.* -j REJECT/);
});
