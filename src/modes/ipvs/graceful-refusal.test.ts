/** An endpoint that comes back while it drains, in a change that the kernel rejects in part. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { ip } from "../../model/testing/records.ts";
import { newModel } from "./testing/backend-rig.ts";

const MINUTE_MS = 60_000;
const FIRST = remote("10.1.1.5");
const SECOND = remote("10.1.1.6");
/** The broadcast address of a subnet of the node, which the kernel rejects (EINVAL). */
const REFUSED = remote("192.168.0.255");

test("an endpoint that came back is not removed, though another one of its service was refused", async (t) => {
  const model = newModel();
  const { rig } = model;
  t.after(() => rig.close());
  const service = port("a", "10.96.0.1");
  const virtualServer = { address: ip("10.96.0.1"), protocol: "TCP", port: 80 } as const;
  const setConnections = (active: number) =>
    rig.node.ipvs.setConnections(virtualServer, { address: SECOND.ip, port: 8080 }, { active, inactive: 0 });
  rig.node.ipvs.refuse((operation) =>
    operation.kind === "add-real-server" && operation.realServer.address === REFUSED.ip ? "EINVAL" : undefined,
  );
  model.set(service, [FIRST, SECOND]);
  await rig.sync();
  setConnections(1);
  rig.watch();
  model.setEndpoints(service, [FIRST]);
  await rig.sync();
  assert.deepEqual(await rig.node.realServers("10.96.0.1:80/TCP"), [
    "10.1.1.5:8080 weight 1",
    "10.1.1.6:8080 weight 0",
  ]);
  model.setEndpoints(service, [SECOND, REFUSED]);
  assert.equal((await rig.sync()).failures.length, 1);
  assert.deepEqual(await rig.node.realServers("10.96.0.1:80/TCP"), ["10.1.1.6:8080 weight 1"]);
  setConnections(0);
  await rig.clock.advance(MINUTE_MS);
  assert.deepEqual(await rig.node.realServers("10.96.0.1:80/TCP"), ["10.1.1.6:8080 weight 1"]);
});
