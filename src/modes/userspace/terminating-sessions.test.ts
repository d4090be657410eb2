import assert from "node:assert/strict";
import { test } from "node:test";
import { makeEndpoint } from "../../model/testing/records.ts";
import { BackendRig } from "./testing/backend-rig.ts";

test("a UDP session stays with an endpoint that terminates and serves, and ends when it is gone", async () => {
  const rig = new BackendRig();
  const key = rig.set("dns", { protocol: "UDP" }, ["10.0.0.1"]);
  await rig.sync();
  assert.equal(rig.connect("UDP", "0.0.0.0", 32768), "10.0.0.1");
  const other = makeEndpoint("10.0.0.2", 8080);
  rig.set("dns", { protocol: "UDP" }, [
    makeEndpoint("10.0.0.1", 8080, { isReady: false, isServing: true, isTerminating: true }),
    other,
  ]);
  await rig.sync();
  assert.deepEqual(Object.fromEntries(rig.backend.openConnections(key)), { "10.0.0.1:8080": 1 });
  rig.set("dns", { protocol: "UDP" }, [other]);
  await rig.sync();
  assert.deepEqual(Object.fromEntries(rig.backend.openConnections(key)), {});
});

test("a UDP session stays with an endpoint that clients are led to though it is not ready to serve (publishNotReadyAddresses)", async () => {
  const rig = new BackendRig();
  const endpoint = makeEndpoint("10.0.0.1", 8080, { isReady: true, isServing: false });
  const key = rig.set("raft", { protocol: "UDP" }, [endpoint]);
  await rig.sync();
  assert.equal(rig.connect("UDP", "0.0.0.0", 32768), "10.0.0.1");
  rig.set("raft", { protocol: "UDP" }, [endpoint, makeEndpoint("10.0.0.2", 8080)]);
  await rig.sync();
  assert.deepEqual(Object.fromEntries(rig.backend.openConnections(key)), { "10.0.0.1:8080": 1 });
});
