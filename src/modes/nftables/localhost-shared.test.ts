/** Rejected node ports on loopback addresses: declared by two Services, and in a first load. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { newModel } from "./testing/backend-rig.ts";

for (const layout of ["Compatible", "Flat"] as const) {
  for (const gone of ["a", "b"]) {
    test(`${layout}: a node port stays refused on loopback addresses when ${gone}, one of two that declare it, goes`, async () => {
      const model = newModel({ layout });
      model.rig.rejectedAtLocalhost = ["TCP"];
      model.rig.restart();
      model.rig.node.nodePortIPs = { kind: "all" };
      const both = ["10.96.0.1", "10.96.0.2"].map((ip, i) => port(i === 0 ? "a" : "b", ip, { nodePort: 30000 }));
      for (const one of both) model.set(one, [remote("10.180.0.1")]);
      await model.rig.sync();
      for (const one of both) if (one.name.name === gone) model.delete(one);
      await model.rig.sync();
      const content = await model.rig.kernel.connect().read();
      const keys = content?.sets.get("localhost-nodeport-reject-ports")?.elements.map(({ key }) => key.join(" "));
      assert.deepEqual(keys, ["tcp 30000"]);
    });
  }

  test(`${layout}: the kernel takes each portion of a first load when node ports are refused on loopback addresses`, async () => {
    const model = newModel({ layout, portsAtOnce: 2 });
    const { rig } = model;
    rig.rejectedAtLocalhost = ["TCP", "UDP", "SCTP"];
    rig.restart();
    rig.node.nodePortIPs = { kind: "all" };
    for (let n = 1; n <= 5; n += 1)
      model.set(port(`s${n}`, `10.96.0.${n}`, { nodePort: 30000 + n }), [remote("10.180.0.1")]);
    await rig.sync();
    assert.deepEqual([rig.kernel.refusals, rig.kernel.transactions.length], [0, 4]);
    const refused = (await rig.kernel.connect().read())?.sets.get("localhost-nodeport-reject-ports")?.elements;
    assert.equal(refused?.length, 5);
  });
}
