/** An address that the kernel rejects (`disable_ipv6`, another program's policy), on a node where pods come and go. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { ip } from "../../model/testing/records.ts";
import { newModel } from "./testing/backend-rig.ts";

test("a refused address is not said to have been removed by another program, nor is all repaired, with every pod", async (t) => {
  const model = newModel();
  const { rig } = model;
  t.after(() => rig.close());
  model.set(port("plain", "10.96.0.1"), [remote("10.1.1.5")]);
  model.set(port("bad", "10.96.0.2", { externalIPs: [ip("198.51.100.1")] }), [remote("10.1.1.6")]);
  rig.node.links.refuse(({ address }) => (address === "198.51.100.1" ? "EACCES" : undefined));
  assert.equal((await rig.sync()).failures.length, 1);
  rig.watch();
  await rig.clock.advance(2000);
  await rig.sync();
  for (const pod of ["veth1", "veth2", "veth3"]) {
    rig.node.links.addForeignLink(pod, "veth");
    await rig.clock.advance(2000);
    await rig.sync();
  }
  assert.deepEqual([rig.logged("warn"), rig.asked.repairs], [[], 0]);
});
