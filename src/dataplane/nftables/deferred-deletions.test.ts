/** Deletions that the kernel does not take yet (before 6.2), and what is wanted again meanwhile. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { newModel, operationText } from "./testing/backend-rig.ts";

const STICKY = { ...port("a", "10.96.0.1"), sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 100 } as const;
const [ONE, TWO] = [remote("10.180.0.1"), remote("10.180.0.2")];

for (const full of [false, true]) {
  test(`an affinity set that a ${full ? "full" : "partial"} sync wants again is not to be deleted any more`, async () => {
    const model = newModel({ releasesLate: true });
    const { rig } = model;
    model.set(STICKY, [ONE, TWO]);
    await rig.sync();
    model.delete(STICKY);
    await rig.sync();
    model.set(STICKY, [ONE, TWO]);
    await rig.sync({ full });
    for (let second = 0; second < 3; second++) {
      rig.passTime(1000);
      assert.deepEqual((await rig.operationsOf()).map(operationText), []);
    }
    assert.deepEqual(rig.metrics, { syncFailures: 0, cleanupFailures: 0 });
  });
}
