/** Services with the same pods: a change of one causes no calls for the others. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { KeyOwners } from "../../model/key-owners.ts";
import { ip } from "../../model/testing/records.ts";
import { newModel } from "./testing/kernelspace-rig.ts";

const PODS = [remote("10.180.1.1"), remote("10.180.1.2")];

test("a change of one Service asks nothing of HNS for another one of the same pods", async () => {
  const model = newModel({ config: { healthPort: 10256 }, rootName: "root" });
  const { host } = model.rig;
  host.addEndpoint({ name: "root", addresses: ["10.180.0.1"] });
  // Its health check cannot be created, which must not fail the Service.
  host.holdPort(6, 10256);
  model.set(port("web", "10.96.0.1", { loadBalancerVIPs: [ip("192.0.2.9")] }), PODS);
  await model.rig.sync();
  const other = port("other", "10.96.0.2");
  model.set(other, PODS);
  host.takeCalls();
  await model.rig.sync();
  const created = host.takeCalls().filter(({ verb, kind }) => verb === "Create" && kind === "LoadBalancer");
  assert.deepEqual(
    created.map(({ about }) => about.includes("192.0.2.9")),
    [false],
  );
});

test("a change of one Service looks at no frontends of others of the same pods", async (t) => {
  const model = newModel();
  const ports = Array.from({ length: 100 }, (_, index) => port(`web-${index}`, `10.96.0.${index + 1}`));
  for (const one of ports) model.set(one, PODS);
  await model.rig.sync();
  const effective = t.mock.method(KeyOwners.prototype, "effective");
  const [first] = ports;
  assert.ok(first);
  model.setEndpoints(first, PODS.slice(1));
  await model.rig.sync();
  assert.ok(effective.mock.callCount() < 20, `${effective.mock.callCount()} looks`);
});
