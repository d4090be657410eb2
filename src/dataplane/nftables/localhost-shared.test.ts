/** Node ports on loopback addresses that are refused, where two Services declare one. */
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
}
