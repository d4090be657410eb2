/** A leftover of the ipvs mode cannot be removed, and the iptables mode starts repeatedly beside it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { local, port } from "../../../testkit/dataplane/test-cluster.ts";
import { silentLogger } from "../../logging/logger.ts";
import { IptablesBackend } from "../iptables/backend.ts";
import { CONFIG } from "../iptables/testing/backend-bench.ts";
import { type CleanUpOptions, cleanUpIpvs } from "./cleanup.ts";
import { newModel } from "./testing/backend-rig.ts";

test("a set that a foreign rule holds: a restart of iptables mode leaves its own rules in force", async () => {
  const model = newModel();
  const { node } = model.rig;
  model.set(port("a", "10.96.0.1", { nodePort: 30080 }), [local("10.1.0.5")]);
  await model.rig.sync();
  node.ipset.references.add("KUBE-CLUSTER-IP");
  const options: CleanUpOptions = {
    ...{ openIpvs: async () => node.ipvs, ipset: node.ipset, links: node.links },
    ...{ iptables: async () => [node.iptables], log: silentLogger },
  };
  // The change of mode: leftovers of the ipvs mode are removed, except the set, and the iptables mode writes its rules.
  assert.equal(await cleanUpIpvs(options), false);
  const nothing = { inc: () => {} };
  const backend = new IptablesBackend({
    config: CONFIG,
    iptables: node.iptables,
    counters: undefined,
    nodePortIPs: async () => ({ kind: "all" }),
    metrics: { restoreFailures: nothing, partialRestoreFailures: nothing, setTotal: () => {}, setLast: () => {} },
    monitor: async () => {},
    log: silentLogger,
  });
  await model.driver.syncOther(backend);
  const inForce = node.iptables.dump("nat") + node.iptables.dump("filter");
  // Each later start of iptables mode, before its first sync (src/modes/ipvs/index.ts, cleanUpBefore).
  await cleanUpIpvs(options);
  assert.equal(node.iptables.dump("nat") + node.iptables.dump("filter"), inForce);
});
