import assert from "node:assert/strict";
import { test } from "node:test";
import { projectEndpointSlice } from "./endpoint-slice.ts";
import { formatProblem } from "./findings.ts";

type Json = Record<string, unknown>;

function slice(fields: Json, metadata: Json = {}): Json {
  return {
    metadata: {
      name: "web-abc.1",
      namespace: "shop",
      resourceVersion: "7",
      labels: { "kubernetes.io/service-name": "web" },
      ...metadata,
    },
    addressType: "IPv4",
    ports: [{ name: "http", port: 8080 }],
    endpoints: [{ addresses: ["10.1.0.1"] }],
    ...fields,
  };
}

function accepted(raw: unknown) {
  const result = projectEndpointSlice(raw);
  assert.ok(result.ok, result.ok ? "" : result.problems.map(formatProblem).join("; "));
  return result;
}

function refusal(raw: unknown): string {
  const result = projectEndpointSlice(raw);
  assert.ok(!result.ok, "the object must be refused");
  return result.problems.map(formatProblem).join("; ");
}

test("names of pods are kept for those who ask, and never for the daemon", () => {
  const named = (targetRef: unknown) => ({ addresses: ["10.1.0.1"], targetRef });
  const references = [
    { kind: "Pod", name: "web-1" },
    { kind: "Pod", name: "web-1", namespace: "other" },
    { kind: "Node", name: "node-a" },
    { kind: "Pod", name: "\u001b[2J" },
    "Pod",
    undefined,
  ];
  const raw = slice({ endpoints: references.map(named) });
  const asked = projectEndpointSlice(raw, undefined, true);
  assert.ok(asked.ok);
  assert.deepEqual(
    asked.record.endpoints.map(({ pod }) => pod),
    ["shop/web-1", "other/web-1", undefined, undefined, undefined, undefined],
  );
  assert.ok(accepted(raw).record.endpoints.every((endpoint) => !("pod" in endpoint)));
});

test("zones are kept for those who ask, and a new one makes a new endpoint", () => {
  const zoned = (...zones: unknown[]) => slice({ endpoints: zones.map((zone) => ({ addresses: ["10.1.0.1"], zone })) });
  const asked = projectEndpointSlice(zoned("zone-1", "", 7, "no zone", undefined), undefined, true);
  assert.ok(asked.ok);
  assert.deepEqual(
    asked.record.endpoints.map(({ zone }) => zone),
    ["zone-1", undefined, undefined, undefined, undefined],
  );
  assert.ok(!("zone" in (accepted(zoned("zone-1")).record.endpoints[0] ?? {})));
  const moved = projectEndpointSlice(zoned("zone-2"), undefined, true, asked.record);
  assert.ok(moved.ok);
  assert.equal(moved.record.endpoints[0]?.zone, "zone-2");
});

test("a slice gets the defaults and the nil rules of conditions", () => {
  const { record } = accepted(slice({ ports: [{ port: 8080 }] }));
  assert.deepEqual(record, {
    namespace: "shop",
    name: "web-abc.1",
    serviceName: "web",
    addressType: "IPv4",
    ports: [{ name: "", protocol: "TCP", port: 8080 }],
    endpoints: [
      {
        address: "10.1.0.1",
        nodeName: "",
        ready: true,
        serving: true,
        terminating: false,
        zoneHints: undefined,
        nodeHints: undefined,
      },
    ],
    lastChangeTriggerTime: "",
    resourceVersion: "7",
  });
  assert.ok(Object.isFrozen(record.endpoints) && Object.isFrozen(record.endpoints[0]));
});

test("serving is true when unset, also on an unready endpoint", () => {
  const { record } = accepted(slice({ endpoints: [{ addresses: ["10.1.0.1"], conditions: { ready: false } }] }));
  assert.equal(record.endpoints[0]?.ready, false);
  assert.equal(record.endpoints[0]?.serving, true);
});

test("hints, node, trigger time and a given version are taken over", () => {
  const endpoint = {
    addresses: ["10.1.0.1"],
    nodeName: "node-a.example",
    conditions: { ready: false, serving: true, terminating: true },
    hints: { forZones: [{ name: "Zone_1" }, { name: "zone-2" }], forNodes: [{ name: "node-a" }] },
  };
  const annotations = { "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z" };
  const result = projectEndpointSlice(slice({ endpoints: [endpoint] }, { annotations }), "digest");
  assert.ok(result.ok);
  assert.equal(result.record.lastChangeTriggerTime, "2026-01-01T00:00:00Z");
  assert.equal(result.record.resourceVersion, "digest");
  assert.deepEqual(result.record.endpoints[0], {
    address: "10.1.0.1",
    nodeName: "node-a.example",
    ready: false,
    serving: true,
    terminating: true,
    zoneHints: ["Zone_1", "zone-2"],
    nodeHints: ["node-a"],
  });
});

test("empty hints are no hints", () => {
  const { record } = accepted(slice({ endpoints: [{ addresses: ["10.1.0.1"], hints: { forZones: [] } }] }));
  assert.equal(record.endpoints[0]?.zoneHints, undefined);
});

test("a port without number stays as null, port 0 becomes null with a warning, the others count", () => {
  const { record, warnings } = accepted(
    slice({ ports: [{ name: "a" }, { name: "b", port: 0 }, { name: "c", port: 65535 }] }),
  );
  assert.deepEqual(
    record.ports.map((port) => port.port),
    [null, null, 65535],
  );
  assert.deepEqual(
    warnings.map((warning) => warning.field),
    ["ports[1].port"],
  );
});

test("endpoints without a usable first address are left out with a warning, the others stay", () => {
  const addresses = [["10.1.0.1"], ["fd00::1"], ["10.1.0.256"], [], ["10.1.0.1 -j ACCEPT"], ["010.001.000.002", "x"]];
  const { record, warnings } = accepted(slice({ endpoints: addresses.map((list) => ({ addresses: list })) }));
  assert.deepEqual(
    record.endpoints.map((endpoint) => endpoint.address),
    ["10.1.0.1", "10.1.0.2"],
  );
  assert.deepEqual(
    warnings.map((warning) => warning.field),
    [
      "endpoints[1].addresses[0]",
      "endpoints[2].addresses[0]",
      "endpoints[3].addresses",
      "endpoints[4].addresses[0]",
      "endpoints[5].addresses[1]",
    ],
  );
});

test("an IPv4-mapped address is IPv4", () => {
  const { record } = accepted(slice({ endpoints: [{ addresses: ["::ffff:10.1.0.1"] }] }));
  assert.deepEqual(
    record.endpoints.map(({ address }) => address),
    ["10.1.0.1"],
  );
});

test("an IPv6 address is kept in its canonical form", () => {
  const { record } = accepted(slice({ addressType: "IPv6", endpoints: [{ addresses: ["FD00:0:0::1", "fd00::2"] }] }));
  assert.deepEqual(
    record.endpoints.map(({ address }) => address),
    ["fd00::1"],
  );
});

test("an FQDN slice is kept without endpoints", () => {
  const { record } = accepted(slice({ addressType: "FQDN", endpoints: [{ addresses: ["a.example"] }] }));
  assert.deepEqual([record.addressType, record.endpoints], ["FQDN", []]);
});

test("a slice without the service label has no service", () => {
  assert.equal(accepted(slice({}, { labels: {} })).record.serviceName, "");
});

test("a slice whose label no Service can have for a name is no Service's, and is not kept with the one it was of", () => {
  for (const label of ["Web", "web_old", "web.old"]) {
    const { record, warnings } = accepted(slice({}, { labels: { "kubernetes.io/service-name": label } }));
    assert.deepEqual([record.serviceName, warnings], ["", []], label);
  }
});

const REFUSED: readonly { name: string; raw: unknown; says: string }[] = [
  {
    name: "port 65536",
    raw: slice({ ports: [{ port: 65536 }] }),
    says: "ports[0].port must be a whole number from 1 to 65535, got 65536",
  },
  { name: "no address type", raw: slice({ addressType: undefined }), says: "addressType must be IPv4, IPv6 or FQDN" },
  { name: "an unknown address type", raw: slice({ addressType: "ipv4" }), says: 'got "ipv4"' },
  {
    name: "a condition in words",
    raw: slice({ endpoints: [{ addresses: ["10.1.0.1"], conditions: { ready: "no" } }] }),
    says: "endpoints[0].conditions.ready must be true or false",
  },
  {
    name: "an endpoint that is a text",
    raw: slice({ endpoints: ["10.1.0.1"] }),
    says: "endpoints[0] must be an object",
  },
  {
    name: "one address instead of a list",
    raw: slice({ endpoints: [{ addresses: "10.1.0.1" }] }),
    says: "endpoints[0].addresses must be a list",
  },
];

for (const { name, raw, says } of REFUSED) {
  test(`refused: ${name}`, () => assert.ok(refusal(raw).includes(says), refusal(raw)));
}

for (const text of ["a b", 'a"', "a\nb", "--flush -j", "a'b", "a\tb", "a\u0007", "a;b"]) {
  test(`nothing is smuggled in as ${JSON.stringify(text)}`, () => {
    const endpoint = (fields: Json) => slice({ endpoints: [{ addresses: ["10.1.0.1"], ...fields }] });
    assert.match(refusal(slice({}, { name: text })), /metadata\.name/);
    assert.match(refusal(slice({}, { namespace: text })), /metadata\.namespace/);
    assert.match(refusal(slice({}, { labels: { "kubernetes.io/service-name": text } })), /service-name/);
    assert.match(refusal(slice({ ports: [{ name: text, port: 1 }] })), /ports\[0\]\.name/);
    assert.match(refusal(endpoint({ nodeName: text })), /endpoints\[0\]\.nodeName/);
    assert.match(refusal(endpoint({ hints: { forZones: [{ name: text }] } })), /forZones\[0\]\.name/);
    assert.match(refusal(endpoint({ hints: { forNodes: [{ name: text }] } })), /forNodes\[0\]\.name/);
  });
}

test("special addresses are left out by name, and the other endpoints stay", () => {
  const specials = ["127.0.0.1", "0.0.0.0", "169.254.169.254", "224.0.0.1", "255.255.255.255"];
  const endpoints = ["10.1.0.1", ...specials].map((address) => ({ addresses: [address] }));
  const { record, warnings } = accepted(slice({ endpoints }));
  assert.deepEqual(
    record.endpoints.map(({ address }) => address),
    ["10.1.0.1"],
  );
  assert.deepEqual(
    warnings.map(({ field, message, value }) => `${field} ${message} ${value}`),
    [
      "endpoints[1].addresses[0] must be the address of a pod or a host, not a special one (loopback); this endpoint is left out 127.0.0.1",
      "endpoints[2].addresses[0] must be the address of a pod or a host, not a special one (unspecified); this endpoint is left out 0.0.0.0",
      "endpoints[3].addresses[0] must be the address of a pod or a host, not a special one (link-local); this endpoint is left out 169.254.169.254",
      "endpoints[4].addresses[0] must be the address of a pod or a host, not a special one (multicast); this endpoint is left out 224.0.0.1",
      "endpoints[5].addresses[0] must be the address of a pod or a host, not a special one (broadcast); this endpoint is left out 255.255.255.255",
    ],
  );
});

const FOUR = ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"];
const HISTORIES: readonly { readonly what: string; readonly after: readonly string[]; readonly shared: number }[] = [
  { what: "one replaced", after: ["10.1.0.1", "10.1.0.9", "10.1.0.3", "10.1.0.4"], shared: 3 },
  { what: "one taken out", after: ["10.1.0.1", "10.1.0.3", "10.1.0.4"], shared: 3 },
  { what: "one put in", after: ["10.1.0.1", "10.1.0.9", "10.1.0.2", "10.1.0.3", "10.1.0.4"], shared: 4 },
  { what: "all new", after: ["10.2.0.1", "10.2.0.2"], shared: 0 },
];

for (const { what, after, shared } of HISTORIES) {
  test(`endpoints that are as they were are kept once: ${what}`, () => {
    const endpointsOf = (list: readonly string[]) =>
      slice({ endpoints: list.map((address) => ({ addresses: [address] })) });
    const before = accepted(endpointsOf(FOUR)).record;
    const now = projectEndpointSlice(endpointsOf(after), undefined, false, before);
    assert.ok(now.ok);
    assert.deepEqual(now.record, accepted(endpointsOf(after)).record);
    const known = new Set(before.endpoints);
    assert.equal(now.record.endpoints.filter((endpoint) => known.has(endpoint)).length, shared);
  });
}

test("an endpoint that is not as it was is another", () => {
  const before = accepted(slice({})).record;
  const changed = slice({ endpoints: [{ addresses: ["10.1.0.1"], hints: { forZones: [{ name: "z" }] } }] });
  const now = projectEndpointSlice(changed, undefined, false, before);
  assert.ok(now.ok);
  assert.deepEqual(now.record.endpoints[0]?.zoneHints, ["z"]);
});

test("a weight is read from our annotation, then from Cilium's; a bad one is reported and does not count", () => {
  const ours = "kube-proxy-ts/weight";
  const cilium = "service.cilium.io/weight";
  const read = (annotations: Json) => {
    const { record, warnings } = accepted(slice({}, { annotations }));
    return [record.weight, warnings.map(formatProblem).join("; ")] as const;
  };
  assert.deepEqual(read({ [ours]: "0" }), [0, ""]);
  assert.deepEqual(read({ [ours]: "65535" }), [65_535, ""]);
  assert.deepEqual(read({ [cilium]: "9" }), [9, ""]);
  assert.deepEqual(read({ [ours]: "1", [cilium]: "9" }), [1, ""]);
  assert.deepEqual(read({ [ours]: "" }), [undefined, ""]);
  for (const bad of ["65536", "-1", "1.5", "x", " 1", "1e3", 7]) {
    const [weight, said] = read({ [ours]: bad, [cilium]: "9" });
    assert.equal(weight, undefined, String(bad));
    assert.match(said, /^metadata\.annotations\["kube-proxy-ts\/weight"\] must be a whole number from 0 to 65535/);
  }
});
