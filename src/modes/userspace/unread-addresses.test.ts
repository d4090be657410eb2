import assert from "node:assert/strict";
import { test } from "node:test";
import { ip } from "../../model/testing/records.ts";
import { BackendRig, HOST } from "./testing/backend-rig.ts";

test("addresses of the host that cannot be read are named, so that they are asked for again, and the known ones stay", async () => {
  const rig = new BackendRig({ rules: "none" });
  const EXTERNAL = "203.0.113.5";
  rig.set("web", { clusterIP: ip("172.16.0.1"), externalIPs: [ip(EXTERNAL)] });
  assert.deepEqual((await rig.sync()).failures, []);
  rig.hostAddresses = ["none"];
  assert.deepEqual(
    (await rig.sync()).failures.map(({ subject }) => subject),
    ["node ports"],
  );
  rig.hostAddresses = [...HOST, EXTERNAL];
  assert.deepEqual((await rig.sync()).failures, []);
  assert.equal(rig.connect("TCP", EXTERNAL, 80), "10.0.0.1");
});
