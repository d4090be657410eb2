import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Endpoint } from "./endpoint.ts";
import type { EndpointRecord, EndpointSliceRecord } from "./objects.ts";
import { joinSlices, readSlice } from "./slice-endpoints.ts";
import { makeEndpointRecord, makeSlice, TCP_80, UDP_53 } from "./testing/records.ts";

function read(slice: EndpointSliceRecord, options: { nodeName?: string } = {}) {
  const problems: string[] = [];
  const { nodeName = "node-a" } = options;
  const { ports } = readSlice(slice, {
    nodeName,
    onProblem: (_message, facts) => problems.push(`${facts.endpointSlice} ${facts.field}`),
  });
  return { ports, problems };
}

/** The endpoints of all slices for the port `p`, joined in the given order. */
function joined(...slices: EndpointSliceRecord[]): readonly Endpoint[] {
  const readSlices = slices.map((slice) => readSlice(slice, { nodeName: "node-a" }));
  return joinSlices(readSlices).get("ns1/svc1:p/TCP") ?? [];
}

const texts = (endpoints: readonly Endpoint[]) => endpoints.map((endpoint) => endpoint.text);

function only(endpoint: EndpointRecord, nodeName = "node-a"): Endpoint {
  const [found] = read(makeSlice({ endpoints: [endpoint] }), { nodeName }).ports[0]?.endpoints ?? [];
  assert.ok(found !== undefined, "no endpoint");
  return found;
}

const READY = makeEndpointRecord("10.0.0.1");
const TERMINATING = makeEndpointRecord("10.0.0.1", { ready: false, terminating: true });

describe("ports of a slice", () => {
  test("each port has all endpoints", () => {
    const slice = makeSlice({ ports: [TCP_80, UDP_53], endpoints: [makeEndpointRecord("10.0.0.1")] });
    const { ports } = read(slice);
    assert.deepEqual(
      ports.map(({ key, endpoints }) => [key, texts(endpoints)]),
      [
        ["ns1/svc1:p/TCP", ["10.0.0.1:80"]],
        ["ns1/svc1:dns/UDP", ["10.0.0.1:53"]],
      ],
    );
  });

  test("an empty name is a name", () => {
    const slice = makeSlice({ ports: [{ ...TCP_80, name: "" }], endpoints: [READY] });
    assert.equal(read(slice).ports[0]?.key, "ns1/svc1/TCP");
  });

  test("ports without a number are skipped and reported; the others count", () => {
    const ports = [{ ...TCP_80, port: null }, UDP_53];
    const found = read(makeSlice({ ports, endpoints: [READY] }));
    assert.deepEqual(found.problems, ["ns1/svc1-a ports[0].port"]);
    assert.deepEqual(
      found.ports.map((port) => port.key),
      ["ns1/svc1:dns/UDP"],
    );
  });

  test("a port without endpoints is left out", () => {
    assert.deepEqual(read(makeSlice()).ports, []);
  });

  test("one IP on two numbers of the same port is two endpoints", () => {
    const slice = makeSlice({ ports: [TCP_80, { ...TCP_80, port: 8080 }], endpoints: [READY] });
    assert.deepEqual(texts(joined(slice)), ["10.0.0.1:80", "10.0.0.1:8080"]);
  });
});

describe("endpoints of a slice", () => {
  test("the text is the address and the port", () => {
    assert.deepEqual([only(READY).ip, only(READY).text], ["10.0.0.1", "10.0.0.1:80"]);
  });

  test("IPv6 text has brackets", () => {
    const slice = makeSlice({ addressType: "IPv6", endpoints: [makeEndpointRecord("fd00::1")] });
    assert.deepEqual(texts(read(slice).ports[0]?.endpoints ?? []), ["[fd00::1]:80"]);
  });

  test("local means this node's name, and never without a name", () => {
    assert.equal(only(makeEndpointRecord("10.0.0.1", { nodeName: "node-a" })).isLocal, true);
    assert.equal(only(makeEndpointRecord("10.0.0.1", { nodeName: "node-b" })).isLocal, false);
    assert.equal(only(makeEndpointRecord("10.0.0.1", { nodeName: "" })).isLocal, false);
    assert.equal(only(makeEndpointRecord("10.0.0.1", { nodeName: "" }), "").isLocal, false);
  });

  test("conditions are carried one by one", () => {
    for (const bits of [0, 1, 2, 3, 4, 5, 6, 7]) {
      const conditions = { ready: (bits & 1) > 0, serving: (bits & 2) > 0, terminating: (bits & 4) > 0 };
      const { isReady, isServing, isTerminating } = only({ ...READY, ...conditions });
      assert.deepEqual({ ready: isReady, serving: isServing, terminating: isTerminating }, conditions);
    }
  });

  test("hints are carried, and their absence", () => {
    const hinted = only({ ...READY, zoneHints: ["z"], nodeHints: ["n", "m"] });
    assert.deepEqual([hinted.zoneHints, hinted.nodeHints], [["z"], ["n", "m"]]);
    assert.deepEqual([only(READY).zoneHints, only(READY).nodeHints], [undefined, undefined]);
  });
});

describe("joining slices", () => {
  test("the order is byte-wise on the text", () => {
    const endpoints = ["10.1.1.1", "10.1.1.11", "10.1.1.2"].map((address) => makeEndpointRecord(address));
    const slice = makeSlice({ ports: [{ ...TCP_80, port: 11 }], endpoints });
    assert.deepEqual(texts(joined(slice)), ["10.1.1.11:11", "10.1.1.1:11", "10.1.1.2:11"]);
  });

  test("the slices of a service merge", () => {
    const a = makeSlice({ endpoints: [makeEndpointRecord("10.0.1.10"), makeEndpointRecord("10.0.1.2")] });
    const b = makeSlice({
      name: "svc1-b",
      endpoints: [makeEndpointRecord("10.0.1.1"), makeEndpointRecord("10.0.1.2")],
    });
    assert.deepEqual(texts(joined(a, b)), ["10.0.1.10:80", "10.0.1.1:80", "10.0.1.2:80"]);
  });

  test("a terminating copy never beats another one, in any order, in one slice or in several", () => {
    const orders = [
      [TERMINATING, READY],
      [READY, TERMINATING],
      [TERMINATING, READY, { ...TERMINATING, serving: false }],
    ];
    for (const order of orders) {
      const inOne = joined(makeSlice({ endpoints: order }));
      const inSeveral = joined(
        ...order.map((endpoint, index) => makeSlice({ name: `s${index}`, endpoints: [endpoint] })),
      );
      for (const found of [inOne, inSeveral]) {
        assert.deepEqual(
          found.map(({ isReady, isTerminating }) => ({ isReady, isTerminating })),
          [{ isReady: true, isTerminating: false }],
        );
      }
    }
  });

  test("of terminating copies the first is kept, of the others the last", () => {
    const notServing = { ...TERMINATING, serving: false };
    assert.equal(joined(makeSlice({ endpoints: [TERMINATING, notServing] }))[0]?.isServing, true);
    const notReady = makeEndpointRecord("10.0.0.1", { ready: false });
    assert.equal(joined(makeSlice({ endpoints: [READY, notReady] }))[0]?.isReady, false);
  });

  test("joining leaves what was read as it was", () => {
    const a = readSlice(makeSlice({ endpoints: [makeEndpointRecord("10.0.0.2")] }), { nodeName: "" });
    const b = readSlice(makeSlice({ endpoints: [makeEndpointRecord("10.0.0.1")] }), { nodeName: "" });
    joinSlices([a, b]);
    assert.deepEqual(texts(a.ports[0]?.endpoints ?? []), ["10.0.0.2:80"]);
    assert.deepEqual(texts(b.ports[0]?.endpoints ?? []), ["10.0.0.1:80"]);
  });
});

test("what a slice meant before and still means is kept once", () => {
  const endpoints = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"].map((address) => makeEndpointRecord(address));
  const before = readSlice(makeSlice({ endpoints }), { nodeName: "" });
  const [first = assert.fail(), , third = assert.fail(), fourth = assert.fail()] = endpoints;
  const changed = [makeEndpointRecord("10.0.0.0"), first, { ...third, ready: false }, fourth];
  const after = readSlice(makeSlice({ endpoints: changed }), { nodeName: "" }, before);
  const known = new Set(before.ports[0]?.endpoints);
  assert.deepEqual(after, readSlice(makeSlice({ endpoints: changed }), { nodeName: "" }));
  assert.deepEqual(
    after.ports[0]?.endpoints.map((endpoint) => [endpoint.ip, known.has(endpoint)]),
    [
      ["10.0.0.0", false],
      ["10.0.0.1", true],
      ["10.0.0.3", false],
      ["10.0.0.4", true],
    ],
  );
});

test("in view of the version before, any change means what it means without, for few endpoints and for many", () => {
  const changes: readonly Partial<EndpointRecord>[] = [
    {},
    { ready: false },
    { serving: false },
    { terminating: true },
    { nodeName: "node-a" },
    { zoneHints: ["z"] },
    { nodeHints: ["n"] },
    { address: makeEndpointRecord("10.0.0.200").address },
  ];
  for (const count of [1, 2, 5, 16, 17, 30]) {
    // Unsorted, and with the first address twice.
    const hosts = Array.from({ length: count }, (_, index) => 1 + ((index * 7) % count));
    const endpoints = [...hosts, 1].map((host) => makeEndpointRecord(`10.0.0.${host}`));
    const ports = [TCP_80, UDP_53, { ...TCP_80, port: 8080 }];
    const before = readSlice(makeSlice({ ports, endpoints }), { nodeName: "node-a" });
    for (const change of changes) {
      const slice = makeSlice({
        ports,
        endpoints: endpoints.with(count >> 1, { ...READY, ...endpoints[count >> 1], ...change }),
      });
      const after = readSlice(slice, { nodeName: "node-a" }, before);
      assert.deepEqual(after, readSlice(slice, { nodeName: "node-a" }), `${count} ${JSON.stringify(change)}`);
      for (const { endpoints: read } of after.ports) {
        assert.deepEqual(texts(read), texts(read).toSorted(), "sorted by text");
      }
    }
  }
});
