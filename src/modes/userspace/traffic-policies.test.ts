/** The userspace mode with Local policies: which clients get which endpoints. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { makeEndpoint } from "../../model/testing/records.ts";
import { BackendRig, proxyPortOf } from "./testing/backend-rig.ts";

const here = (address: string) => makeEndpoint(address, 8080, { isLocal: true });
const elsewhere = (address: string) => makeEndpoint(address, 8080);

test("a Local policy of the outside: clients outside get this node's endpoints, pods and the node all", async () => {
  const rig = new BackendRig();
  const local = { nodePort: 30080, externalPolicyLocal: true, isExternallyAccessible: true };
  rig.set("web", local, [here("10.1.0.1"), elsewhere("10.1.1.1")]);
  await rig.sync();
  const portOf = (pattern: RegExp) => Number(rig.portalRules.map((rule) => pattern.exec(rule)?.[1]).find(Boolean));
  const pods = portOf(/^KUBE-NODEPORT-CONTAINER -s 10\.1\.0\.0\/16 .*--to-ports (\d+)$/);
  const others = portOf(/^KUBE-NODEPORT-CONTAINER -p .*--to-ports (\d+)$/);
  assert.equal(portOf(/^KUBE-NODEPORT-HOST .*:(\d+)$/), pods);
  const met = (port: number) => new Set([1, 2, 3, 4].map(() => rig.connect("TCP", "0.0.0.0", port)));
  assert.deepEqual(met(others), new Set(["10.1.0.1"]));
  assert.deepEqual(met(pods), new Set(["10.1.0.1", "10.1.1.1"]));
  rig.set("web", local, [elsewhere("10.1.1.1")]);
  await rig.sync();
  assert.ok(rig.portalRules.some((rule) => /^KUBE-PORTALS-UNSERVED .*--dport 30080 .*-j DROP$/.test(rule)));
  assert.ok(!rig.portalRules.some((rule) => rule.endsWith(`--to-ports ${others}`)));
  assert.deepEqual(met(pods), new Set(["10.1.1.1"]));
});

test("a policy that changes opens and closes a lane; an internal Local policy keeps everyone here", async () => {
  const rig = new BackendRig();
  const endpoints = [here("10.1.0.1"), elsewhere("10.1.1.1")];
  rig.set("web", {}, endpoints);
  await rig.sync();
  const before = rig.openSockets;
  rig.set("web", { internalPolicyLocal: true }, endpoints);
  await rig.sync();
  assert.equal(rig.openSockets.length, 1);
  assert.notDeepEqual(rig.openSockets, before);
  const port = proxyPortOf(rig, "172.16.0.1", 80) ?? 0;
  assert.deepEqual(new Set([1, 2, 3].map(() => rig.connect("TCP", "0.0.0.0", port))), new Set(["10.1.0.1"]));
  rig.set("web", { internalPolicyLocal: true }, [elsewhere("10.1.1.1")]);
  await rig.sync();
  assert.deepEqual(rig.portalRules, ["KUBE-PORTALS-UNSERVED -d 172.16.0.1/32 -p tcp --dport 80 -j DROP"]);
});
