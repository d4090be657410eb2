import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_ADDRESSES_PER_SUBSET, projectEndpoints } from "./mirrored-slices.ts";

function slicesOf(subsets: unknown) {
  const result = projectEndpoints({ metadata: { name: "web", namespace: "shop" }, subsets });
  assert.ok(result.ok, JSON.stringify(result));
  return { slices: result.record, warnings: result.warnings };
}

const PORTS = [{ name: "http", port: 8080 }];

test("ready and unready addresses of a subset become one slice per family", () => {
  const { slices } = slicesOf([
    {
      addresses: [{ ip: "10.1.0.1", nodeName: "node-a" }, { ip: "fd00::1" }],
      notReadyAddresses: [{ ip: "10.1.0.2" }],
      ports: PORTS,
    },
  ]);
  const summary = slices.map(({ addressType, endpoints }) => [
    addressType,
    endpoints.map(({ address, ready, serving, terminating, nodeName }) => [
      address,
      ready,
      serving,
      terminating,
      nodeName,
    ]),
  ]);
  assert.deepEqual(summary, [
    [
      "IPv4",
      [
        ["10.1.0.1", true, true, false, "node-a"],
        ["10.1.0.2", false, true, false, ""],
      ],
    ],
    ["IPv6", [["fd00::1", true, true, false, ""]]],
  ]);
  for (const slice of slices) {
    assert.equal(slice.serviceName, "web");
    assert.equal(slice.namespace, "shop");
    assert.match(slice.name, /^web-[a-z0-9]{8}$/);
    assert.deepEqual(slice.ports, [{ name: "http", protocol: "TCP", port: 8080 }]);
  }
});

test("subsets of the same ports share a slice, others do not", () => {
  const { slices } = slicesOf([
    { addresses: [{ ip: "10.1.0.1" }], ports: PORTS },
    { addresses: [{ ip: "10.1.0.2" }], ports: PORTS },
    { addresses: [{ ip: "10.1.0.3" }], ports: [{ name: "http", port: 9090 }] },
  ]);
  assert.deepEqual(
    slices.map((slice) => slice.endpoints.length),
    [2, 1],
  );
  assert.notEqual(slices[0]?.name, slices[1]?.name);
});

test("a slice keeps its name while only addresses change, and its version while nothing does", () => {
  const one = slicesOf([{ addresses: [{ ip: "10.1.0.1" }], ports: PORTS }]).slices[0];
  const same = slicesOf([{ addresses: [{ ip: "10.1.0.1" }], ports: PORTS }]).slices[0];
  const other = slicesOf([{ addresses: [{ ip: "10.1.0.9" }], ports: PORTS }]).slices[0];
  assert.equal(one?.resourceVersion, same?.resourceVersion);
  assert.equal(one?.name, other?.name);
  assert.notEqual(one?.resourceVersion, other?.resourceVersion);
});

test("addresses are made canonical, and bad ones are left out", () => {
  const { slices, warnings } = slicesOf([
    { addresses: [{ ip: "010.1.0.1" }, { ip: "10.1.0.1 -j DROP" }], ports: PORTS },
  ]);
  assert.deepEqual(slices[0]?.endpoints[0]?.address, "10.1.0.1");
  assert.equal(slices[0]?.endpoints.length, 1);
  assert.equal(warnings[0]?.field, "subsets[0].addresses[1].ip");
});

test("a subset gives at most a thousand addresses, ready ones first", () => {
  const many = Array.from({ length: 999 }, (_, index) => ({ ip: `10.1.${index >> 8}.${index & 255}` }));
  const { slices, warnings } = slicesOf([
    { addresses: many, notReadyAddresses: [{ ip: "10.9.0.1" }, { ip: "10.9.0.2" }], ports: PORTS },
  ]);
  assert.equal(slices[0]?.endpoints.length, MAX_ADDRESSES_PER_SUBSET);
  assert.equal(slices[0]?.endpoints.at(-1)?.ready, false);
  assert.equal(warnings[0]?.field, "subsets[0].notReadyAddresses[1]");
});

test("Endpoints without subsets give no slice, and bad ports refuse the object", () => {
  assert.deepEqual(slicesOf(undefined).slices, []);
  const bad = projectEndpoints({ metadata: { name: "web" }, subsets: [{ addresses: [], ports: [{ port: 0 }] }] });
  assert.ok(!bad.ok);
  assert.equal(bad.problems[0]?.field, "subsets[0].ports[0].port");
});
