import assert from "node:assert/strict";
import { test } from "node:test";
import { projectNode, projectServiceCidr } from "./kinds.ts";

test("a Node keeps its identity, addresses, pod CIDRs, zone and taints", () => {
  const result = projectNode({
    metadata: { name: "node-a.example", uid: "u-1", labels: { "topology.kubernetes.io/zone": "zone-1" } },
    spec: {
      podCIDR: "10.1.0.0/24",
      podCIDRs: ["10.1.0.0/24", "fd00::/80"],
      taints: [{ key: "x", effect: "NoSchedule" }],
    },
    status: { addresses: [{ type: "InternalIP", address: "10.0.0.1" }] },
  });
  assert.deepEqual(result, {
    ok: true,
    warnings: [],
    record: {
      name: "node-a.example",
      uid: "u-1",
      zone: "zone-1",
      addresses: [{ type: "InternalIP", address: "10.0.0.1" }],
      podCIDRs: ["10.1.0.0/24", "fd00::/80"],
      taintKeys: ["x"],
      isBeingDeleted: false,
    },
  });
});

test("a Node that is going away says so", () => {
  const result = projectNode({ metadata: { name: "a", deletionTimestamp: "2026-01-01T00:00:00Z" } });
  assert.ok(result.ok && result.record.isBeingDeleted);
});

test("a Node with only podCIDR has that one, and one that does not parse is left out", () => {
  const old = projectNode({ metadata: { name: "a" }, spec: { podCIDR: "10.1.0.0/24" } });
  assert.ok(old.ok);
  assert.deepEqual(old.record.podCIDRs, ["10.1.0.0/24"]);
  const bad = projectNode({ metadata: { name: "a" }, spec: { podCIDRs: ["10.1.0.0/24", "10.2.0.0 -j DROP"] } });
  assert.ok(bad.ok);
  assert.deepEqual(bad.record.podCIDRs, ["10.1.0.0/24"]);
  assert.equal(bad.warnings.length, 1);
});

test("an empty zone is a zone, an absent one is not", () => {
  const withZone = (labels: unknown) => {
    const result = projectNode({ metadata: { name: "a", labels } });
    assert.ok(result.ok);
    return result.record.zone;
  };
  assert.equal(withZone({ "topology.kubernetes.io/zone": "" }), "");
  assert.equal(withZone({}), undefined);
});

test("a Node whose name or zone holds more than a name is refused", () => {
  assert.equal(projectNode({ metadata: { name: "a b" } }).ok, false);
  assert.equal(projectNode({ metadata: { name: "A" } }).ok, false);
  assert.equal(projectNode({ metadata: { name: "a", labels: { "topology.kubernetes.io/zone": "a\nb" } } }).ok, false);
});

test("a ServiceCIDR keeps its prefixes, and one that does not parse refuses it", () => {
  const good = projectServiceCidr({
    metadata: { name: "kubernetes" },
    spec: { cidrs: ["10.96.0.0/12", "fd00::/108"] },
  });
  assert.ok(good.ok);
  assert.deepEqual(good.record, { name: "kubernetes", cidrs: ["10.96.0.0/12", "fd00::/108"] });
  const bad = projectServiceCidr({ metadata: { name: "kubernetes" }, spec: { cidrs: ["10.96.0.0/33"] } });
  assert.ok(!bad.ok);
  assert.equal(bad.problems[0]?.field, "spec.cidrs[0]");
});
