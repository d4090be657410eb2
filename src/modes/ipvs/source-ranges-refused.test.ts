/** If the kernel rejects source ranges, the load balancer is not served to everyone. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { ip } from "../../model/testing/records.ts";
import type { Cidr } from "../../net/ip.ts";
import { type BackendRig, newModel } from "./testing/backend-rig.ts";

const LIMITED = { loadBalancerVIPs: [ip("203.0.113.1")], loadBalancerSourceRanges: ["198.18.0.0/15"] as Cidr[] };

function lock({ node: { iptables } }: BackendRig): () => void {
  iptables.isLocked = true;
  return () => {
    iptables.isLocked = false;
  };
}

const refuseEntry = ({ node: { ipset } }: BackendRig) =>
  ipset.refuse(({ set }) => (set === "KUBE-LOAD-BALANCER-FW" ? "IPSET_ERR_HASH_FULL" : undefined));

for (const [what, refuse] of [
  ["iptables is locked", lock],
  ["the set of such addresses is full", refuseEntry],
] as const) {
  for (const full of [false, true]) {
    test(`${what} in a ${full ? "full sync" : "sync of changes"}: the new address waits, all else is served, and it follows`, async () => {
      const model = newModel();
      const { rig } = model;
      model.set(port("plain", "10.96.0.1"), [remote("10.1.1.5")]);
      await rig.sync();
      const heal = refuse(rig);
      model.set(port("limited", "10.96.0.2", LIMITED), [remote("10.1.1.6")]);
      for (let n = 0; n < 3; n += 1) {
        const { failures } = await rig.sync({ full });
        assert.equal(await rig.node.realServers("203.0.113.1:80/TCP"), undefined);
        assert.deepEqual(await rig.node.realServers("10.96.0.2:80/TCP"), ["10.1.1.6:8080 weight 1"]);
        assert.ok(failures.some(({ subject }) => subject === "ns/limited:p"));
      }
      heal();
      assert.deepEqual((await rig.sync({ full })).failures, []);
      assert.deepEqual(await rig.node.state(), await rig.fromNothing());
    });
  }

  test(`${what}: an address that is served stays served`, async () => {
    const model = newModel();
    const { rig } = model;
    model.set(port("limited", "10.96.0.2", LIMITED), [remote("10.1.1.6")]);
    await rig.sync();
    const heal = refuse(rig);
    model.set(port("limited", "10.96.0.2", LIMITED), [remote("10.1.1.6"), remote("10.1.1.7")]);
    for (const full of [false, true]) {
      await rig.sync({ full });
      assert.equal((await rig.node.realServers("203.0.113.1:80/TCP"))?.length, 2);
    }
    heal();
    assert.deepEqual((await rig.sync()).failures, []);
    assert.deepEqual(await rig.node.state(), await rig.fromNothing());
  });
}

test("of addresses that wait the kernel is asked once in a sync, and not at all in the first one", async () => {
  const model = newModel();
  const { rig } = model;
  await rig.sync();
  lock(rig);
  const vips = Array.from({ length: 50 }, (_, index) => ip(`203.0.113.${index + 1}`));
  model.set(port("limited", "10.96.0.2", { ...LIMITED, loadBalancerVIPs: vips }), [remote("10.1.1.6")]);
  rig.node.takeCosts();
  await rig.sync();
  const first = rig.node.takeCosts().ipvs;
  await rig.sync();
  assert.deepEqual([first < vips.length, rig.node.takeCosts().ipvs < 2 * vips.length], [true, true]);
});
