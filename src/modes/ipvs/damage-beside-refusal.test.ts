/** A part of one Service stays rejected while another program damages all others. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { ip } from "../../model/testing/records.ts";
import { newModel, type TestModel, VERIFY_PERIOD_MS } from "./testing/backend-rig.ts";

const PLAIN = port("plain", "10.96.0.1");
const BAD = port("bad", "10.96.0.2", { externalIPs: [ip("198.51.100.1")] });

/** One part is rejected; everything else is in order. */
async function refusing(prepare: (model: TestModel) => void): Promise<TestModel> {
  const model = newModel();
  model.set(PLAIN, [remote("10.1.1.5")]);
  model.set(BAD, [remote("10.1.1.6")]);
  prepare(model);
  const { failures } = await model.rig.sync();
  assert.equal(failures.length, 1);
  model.rig.watch();
  await model.rig.clock.advance(2000);
  assert.equal((await model.rig.sync()).failures.length, 1);
  return model;
}

/** A virtual server that the kernel rejects. */
const withoutServer = (model: TestModel) =>
  void model.rig.node.ipvs.refuse(({ virtualServer }) =>
    virtualServer.address === "198.51.100.1" ? "EPERM" : undefined,
  );

/** A set that is full. */
const withFullSet = (model: TestModel) =>
  void model.rig.node.ipset.refuse(({ set, kind }) =>
    set === "KUBE-EXTERNAL-IP" && kind === "add" ? "IPSET_ERR_HASH_FULL" : undefined,
  );

// The proxier's full syncs are up to an hour apart while anything is rejected (proxier.ts, incompleteRestMs).
for (const [what, refuse] of [
  ["virtual server", withoutServer],
  ["set entry", withFullSet],
] as const) {
  test(`ipvsadm -C while one ${what} stays refused: the others are back within a few periods`, async (t) => {
    const { rig } = await refusing(refuse);
    t.after(() => rig.close());
    await rig.node.ipvs.flush();
    for (let n = 0; n < 10; n += 1) {
      await rig.clock.advance(VERIFY_PERIOD_MS);
      await rig.sync(); // as a retry does
    }
    assert.deepEqual(await rig.node.realServers("10.96.0.1:80/TCP"), ["10.1.1.5:8080 weight 1"]);
  });

  test(`the rules of nat are flushed while one ${what} stays refused`, async (t) => {
    const { rig } = await refusing(refuse);
    t.after(() => rig.close());
    rig.node.iptables.flush("nat");
    for (let n = 0; n < 10; n += 1) {
      await rig.clock.advance(VERIFY_PERIOD_MS);
      await rig.sync();
    }
    assert.match(await rig.node.iptables.save("nat"), /-A PREROUTING .* -j KUBE-SERVICES/);
  });
}

test("what is refused alone is no damage: nothing is repaired period after period", async (t) => {
  const { rig } = await refusing(withoutServer);
  t.after(() => rig.close());
  rig.asked.repairs = 0;
  for (let n = 0; n < 5; n += 1) {
    await rig.clock.advance(VERIFY_PERIOD_MS);
    await rig.sync();
  }
  assert.equal(rig.asked.repairs, 0);
});
