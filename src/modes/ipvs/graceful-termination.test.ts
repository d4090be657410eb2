import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";
import { ip } from "../../model/testing/records.ts";
import type { Protocol } from "../../net/protocol.ts";
import { newModel } from "./testing/backend-rig.ts";

const MINUTE_MS = 60_000;
const FIRST = remote("10.1.1.5");
const SECOND = remote("10.1.1.6");
const AFFINE = { address: ip("10.1.1.6"), port: 8080 };

/** A watched Service with two endpoints, one of which has connections. */
async function withConnections(protocol: Protocol = "TCP", active = 1, inactive = 0) {
  const model = newModel();
  const service = port("a", "10.96.0.1", { protocol });
  const virtualServer = { address: ip("10.96.0.1"), protocol, port: 80 };
  model.set(service, [FIRST, SECOND]);
  await model.rig.sync();
  model.rig.node.ipvs.setConnections(virtualServer, AFFINE, { active, inactive });
  model.rig.watch();
  return {
    model,
    service,
    rig: model.rig,
    setConnections: (count: number) =>
      model.rig.node.ipvs.setConnections(virtualServer, AFFINE, { active: count, inactive: 0 }),
    realServers: () => model.rig.node.realServers(`10.96.0.1:80/${protocol}`),
  };
}

for (const [active, inactive] of [
  [1, 0],
  [0, 1],
] as const) {
  test(`a TCP endpoint with ${active} active and ${inactive} inactive connections stays without weight until they end`, async (t) => {
    const { model, service, rig, setConnections, realServers } = await withConnections("TCP", active, inactive);
    t.after(() => rig.close());
    model.setEndpoints(service, [FIRST]);
    await rig.sync();
    const draining = ["10.1.1.5:8080 weight 1", "10.1.1.6:8080 weight 0"];
    assert.deepEqual(await realServers(), draining);
    await rig.clock.advance(10 * MINUTE_MS);
    assert.deepEqual(await realServers(), draining, "there is no limit to how long");
    setConnections(0);
    assert.deepEqual(await realServers(), draining);
    await rig.clock.advance(MINUTE_MS);
    assert.deepEqual(await realServers(), ["10.1.1.5:8080 weight 1"]);
    assert.equal(rig.asked.repairs, 0);
  });
}

for (const protocol of ["UDP", "SCTP"] as const) {
  test(`a ${protocol} endpoint goes at once`, async (t) => {
    const { model, service, rig, realServers } = await withConnections(protocol);
    t.after(() => rig.close());
    model.setEndpoints(service, [FIRST]);
    await rig.sync();
    assert.deepEqual(await realServers(), ["10.1.1.5:8080 weight 1"]);
  });
}

test("a TCP endpoint without connections goes at once", async (t) => {
  const { model, service, rig, realServers } = await withConnections("TCP", 0);
  t.after(() => rig.close());
  model.setEndpoints(service, [FIRST]);
  await rig.sync();
  assert.deepEqual(await realServers(), ["10.1.1.5:8080 weight 1"]);
});

test("an endpoint that comes back gets its weight back, with its connections, and is not removed later", async (t) => {
  const { model, service, rig, setConnections, realServers } = await withConnections();
  t.after(() => rig.close());
  model.setEndpoints(service, [FIRST]);
  await rig.sync();
  model.setEndpoints(service, [FIRST, SECOND]);
  rig.node.ipvs.takeOperations();
  await rig.sync();
  assert.deepEqual(
    rig.node.ipvs.takeOperations().map(({ kind }) => kind),
    ["update-real-server"],
  );
  setConnections(0);
  await rig.clock.advance(2 * MINUTE_MS);
  assert.deepEqual(await realServers(), ["10.1.1.5:8080 weight 1", "10.1.1.6:8080 weight 1"]);
});

test("other changes, full syncs and verification leave a draining endpoint alone", async (t) => {
  const { model, service, rig, realServers } = await withConnections();
  t.after(() => rig.close());
  model.setEndpoints(service, [FIRST]);
  await rig.sync();
  model.setEndpoints(service, [FIRST, remote("10.1.1.7")]);
  await rig.sync();
  await rig.sync({ full: true });
  await rig.clock.advance(MINUTE_MS);
  assert.equal(rig.asked.repairs, 0);
  const draining = ["10.1.1.5:8080 weight 1", "10.1.1.6:8080 weight 0", "10.1.1.7:8080 weight 1"];
  assert.deepEqual(await realServers(), draining);
  rig.node.ipvs.takeOperations();
  await rig.sync({ full: true });
  assert.deepEqual(rig.node.ipvs.takeOperations(), []);
});

test("killed in the middle and started again, it is found again and goes when its connections end", async (t) => {
  const { model, service, rig, setConnections, realServers } = await withConnections();
  t.after(() => rig.close());
  model.setEndpoints(service, [FIRST]);
  await rig.sync();
  await rig.restart();
  rig.watch();
  rig.node.ipvs.takeOperations();
  await rig.sync();
  assert.deepEqual(rig.node.ipvs.takeOperations(), [], "it has no weight already");
  assert.deepEqual(await realServers(), ["10.1.1.5:8080 weight 1", "10.1.1.6:8080 weight 0"]);
  setConnections(0);
  await rig.clock.advance(MINUTE_MS);
  assert.deepEqual(await realServers(), ["10.1.1.5:8080 weight 1"]);
});

test("killed in the middle, and wanted again at the start, it gets its weight back", async (t) => {
  const { model, service, rig, realServers } = await withConnections();
  t.after(() => rig.close());
  model.setEndpoints(service, [FIRST]);
  await rig.sync();
  model.setEndpoints(service, [FIRST, SECOND]);
  await rig.restart();
  await rig.sync();
  assert.deepEqual(await realServers(), ["10.1.1.5:8080 weight 1", "10.1.1.6:8080 weight 1"]);
});

test("the real servers of a service that goes are gone at once, and are not missed later", async (t) => {
  const { model, service, rig, realServers } = await withConnections();
  t.after(() => rig.close());
  model.setEndpoints(service, [FIRST]);
  await rig.sync();
  model.delete(service);
  await rig.sync();
  assert.equal(await realServers(), undefined);
  rig.log.length = 0;
  await rig.clock.advance(2 * MINUTE_MS);
  assert.deepEqual(rig.logged("error"), []);
});

test("one that another program removes is said, and forgotten", async (t) => {
  const { model, service, rig } = await withConnections();
  t.after(() => rig.close());
  model.setEndpoints(service, [FIRST]);
  await rig.sync();
  const virtualServer = { address: ip("10.96.0.1"), protocol: "TCP", port: 80 } as const;
  await rig.node.ipvs.apply([{ kind: "delete-real-server", virtualServer, realServer: AFFINE }]);
  await rig.clock.advance(2 * MINUTE_MS);
  assert.deepEqual(rig.logged("error"), ["Another program removed a real server before its connections ended"]);
});

test("one that cannot be removed is tried again", async (t) => {
  const { model, service, rig, setConnections, realServers } = await withConnections();
  t.after(() => rig.close());
  model.setEndpoints(service, [FIRST]);
  await rig.sync();
  setConnections(0);
  const heal = rig.node.ipvs.refuse(({ kind }) => (kind === "delete-real-server" ? "EBUSY" : undefined));
  await rig.clock.advance(MINUTE_MS);
  assert.deepEqual(rig.logged("error"), ["Failed to remove a draining real server; will try again"]);
  heal();
  await rig.clock.advance(MINUTE_MS);
  assert.deepEqual(await realServers(), ["10.1.1.5:8080 weight 1"]);
});

for (const protocol of ["UDP", "SCTP"] as const) {
  test(`a full sync, too, removes a ${protocol} endpoint with any connections`, async (t) => {
    const { model, service, rig, realServers } = await withConnections(protocol);
    t.after(() => rig.close());
    model.setEndpoints(service, [FIRST]);
    await rig.restart();
    await rig.sync();
    assert.deepEqual(await realServers(), ["10.1.1.5:8080 weight 1"]);
  });
}
