/** Random clusters, served by one process after another: what programs remember holds over every restart. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { local, port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import fc from "../../../testkit/support/fast-check.ts";
import { ip } from "../../model/testing/records.ts";
import { PinnedNode } from "./testing/pinned-node.ts";

/** Two nodes are at work: no store of either counts as a step. */
const UNCOUNTED = { mock: { method() {} } };
const number = (max: number) => fc.integer({ min: 1, max });
const change = fc.record({
  service: number(4),
  isGone: fc.integer({ min: 0, max: 9 }).map((roll) => roll === 0),
  endpoints: fc.uniqueArray(number(9), { maxLength: 6 }),
  externalIP: fc.option(number(3)),
  nodePort: fc.option(number(2)),
  internalPolicyLocal: fc.boolean(),
  externalPolicyLocal: fc.boolean(),
  isUdp: fc.boolean(),
});
type Change = typeof change extends fc.Arbitrary<infer T> ? T : never;
const history = fc.array(
  fc.record({ here: fc.array(change, { maxLength: 4 }), away: fc.array(change, { maxLength: 2 }) }),
  {
    minLength: 1,
    maxLength: 5,
  },
);

function apply(cluster: TestCluster, one: Change): void {
  const { service, endpoints, externalIP, nodePort, isUdp, internalPolicyLocal, externalPolicyLocal } = one;
  const [name, address] = [`s${service}`, `10.96.0.${service}`];
  const made = port(name, address, {
    ...{ internalPolicyLocal, externalPolicyLocal },
    // The port tells their records apart.
    ...(isUdp ? { protocol: "UDP", port: 81 } : {}),
    ...(externalIP === null ? {} : { externalIPs: [ip(`192.0.2.${externalIP}`)] }),
    ...(nodePort === null ? {} : { nodePort: 30_000 + 10 * service + nodePort }),
  });
  for (const other of [port(name, address), port(name, address, { protocol: "UDP", port: 81 })]) {
    if (one.isGone || other.name.key !== made.name.key) cluster.delete(other);
  }
  const all = endpoints.map((at) => (at % 2 === 0 ? remote : local)(`10.180.1.${at}`));
  if (!one.isGone) cluster.set(made, all);
}

test("no restart moves a client whose Service has not changed meanwhile, or leads one elsewhere than the first start would", async () => {
  await fc.assert(
    fc.asyncProperty(history, async (rounds) => {
      const [node, cluster] = [new PinnedNode(UNCOUNTED), new TestCluster()];
      let process = node.start();
      for (const { here, away } of rounds) {
        for (const one of here) apply(cluster, one);
        await cluster.driver.sync(process.backend);
        const before = node.records();
        process.kill();
        for (const one of away) apply(cluster, one);
        process = node.start();
        cluster.driver.forget();
        await cluster.driver.sync(process.backend);
        if (away.length === 0) assert.deepEqual(node.records(), before);
        const fresh = new PinnedNode(UNCOUNTED);
        cluster.driver.forget();
        const first = fresh.start();
        await cluster.driver.sync(first.backend);
        first.kill();
        assert.deepEqual(new Map([...node.leads()].sort()), new Map([...fresh.leads()].sort()));
      }
      process.kill();
    }),
    { numRuns: 60 },
  );
});
