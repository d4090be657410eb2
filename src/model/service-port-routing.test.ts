import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "../../testkit/support/fast-check.ts";
import type { Endpoint } from "./endpoint.ts";
import type { ServicePort } from "./service-port.ts";
import { categorizeEndpoints, usesClusterEndpoints, usesLocalEndpoints } from "./service-port-routing.ts";
import { makeEndpoint, makeServicePort } from "./testing/records.ts";

const NODE = { nodeName: "me", zone: "zone-a" };

const INTERNAL_CLUSTER = makeServicePort();
const INTERNAL_LOCAL = makeServicePort({ internalPolicyLocal: true });
const EXTERNAL_LOCAL = makeServicePort({ externalPolicyLocal: true, isExternallyAccessible: true });
const BOTH_LOCAL = makeServicePort({ ...EXTERNAL_LOCAL, internalPolicyLocal: true });
const UNREACHABLE_LOCAL = makeServicePort({ externalPolicyLocal: true });

const READY: Partial<Endpoint> = {};
const SERVING_TERMINATING: Partial<Endpoint> = { isReady: false, isTerminating: true };
const NEITHER: Partial<Endpoint> = { isReady: false, isServing: false };
const LOCAL: Partial<Endpoint> = { isLocal: true };

/** `a: READY` becomes the endpoint 10.0.0.1, and so on; assertions use the same letters. */
function endpointsOf(parts: Record<string, Partial<Endpoint>>): Endpoint[] {
  return Object.entries(parts).map(([letter, part]) => makeEndpoint(`10.0.0.${letter.charCodeAt(0) - 96}`, 80, part));
}

function letters(endpoints: readonly Endpoint[] | undefined): string {
  if (endpoints === undefined) return "absent";
  return endpoints.map(({ ip }) => String.fromCharCode(96 + Number(ip.split(".").at(-1)))).join(" ");
}

type Row = readonly [
  string,
  ServicePort,
  Record<string, Partial<Endpoint>>,
  { cluster: string; local: string; reachable: string; hasAny: boolean },
];

const hints = (zone: string) => ({ zoneHints: [zone] });

const rows: readonly Row[] = [
  [
    "unready endpoints are not used",
    INTERNAL_CLUSTER,
    { a: NEITHER, b: READY },
    { cluster: "b", local: "absent", reachable: "b", hasAny: true },
  ],
  [
    "only terminating ones: they serve",
    INTERNAL_CLUSTER,
    { a: { ...SERVING_TERMINATING, ...LOCAL }, b: SERVING_TERMINATING },
    { cluster: "a b", local: "absent", reachable: "a b", hasAny: true },
  ],
  ["nothing usable", INTERNAL_CLUSTER, { a: NEITHER }, { cluster: "", local: "absent", reachable: "", hasAny: false }],
  [
    "terminating without serving is nothing",
    INTERNAL_CLUSTER,
    { a: { ...NEITHER, isTerminating: true } },
    { cluster: "", local: "absent", reachable: "", hasAny: false },
  ],
  [
    "unready but serving (nil serving with ready false) is nothing",
    INTERNAL_CLUSTER,
    { a: { isReady: false } },
    { cluster: "", local: "absent", reachable: "", hasAny: false },
  ],
  [
    "iTP Local with a local one",
    INTERNAL_LOCAL,
    { a: READY, b: LOCAL },
    { cluster: "absent", local: "b", reachable: "b", hasAny: true },
  ],
  [
    "iTP Local with remote ones only: drop, not reject",
    INTERNAL_LOCAL,
    { a: READY, b: READY },
    { cluster: "absent", local: "", reachable: "", hasAny: true },
  ],
  [
    "iTP Local: one remote terminating endpoint is enough for hasAny",
    INTERNAL_LOCAL,
    { a: SERVING_TERMINATING },
    { cluster: "absent", local: "", reachable: "", hasAny: true },
  ],
  [
    "iTP Local: nothing usable anywhere",
    INTERNAL_LOCAL,
    { a: NEITHER, b: { ...NEITHER, ...LOCAL } },
    { cluster: "absent", local: "", reachable: "", hasAny: false },
  ],
  [
    "eTP Local: the fallback is decided for each set on its own",
    EXTERNAL_LOCAL,
    { a: READY, b: { ...NEITHER, ...LOCAL }, c: { ...SERVING_TERMINATING, ...LOCAL }, d: SERVING_TERMINATING },
    { cluster: "a", local: "c", reachable: "a c", hasAny: true },
  ],
  [
    "eTP Local with local ready ones: no fallback beside them",
    EXTERNAL_LOCAL,
    { a: READY, b: LOCAL, c: { ...SERVING_TERMINATING, ...LOCAL } },
    { cluster: "a b", local: "b", reachable: "a b", hasAny: true },
  ],
  [
    "iTP and eTP Local, all remote",
    BOTH_LOCAL,
    { a: READY, b: READY },
    { cluster: "a b", local: "", reachable: "a b", hasAny: true },
  ],
  [
    "iTP and eTP Local, all remote and terminating",
    BOTH_LOCAL,
    { a: SERVING_TERMINATING, b: SERVING_TERMINATING },
    { cluster: "a b", local: "", reachable: "a b", hasAny: true },
  ],
  [
    "both sets in their fallback: the union has no duplicates",
    EXTERNAL_LOCAL,
    { a: { ...SERVING_TERMINATING, ...LOCAL }, b: SERVING_TERMINATING },
    { cluster: "a b", local: "a", reachable: "a b", hasAny: true },
  ],
  [
    "eTP Local without a way in from outside makes no local set",
    UNREACHABLE_LOCAL,
    { a: READY, b: LOCAL },
    { cluster: "a b", local: "absent", reachable: "a b", hasAny: true },
  ],
  [
    "eTP Local with zone hints: topology never restricts the local set",
    EXTERNAL_LOCAL,
    {
      a: { ...LOCAL, ...hints("zone-a") },
      b: { ...LOCAL, ...hints("zone-b") },
      c: hints("zone-a"),
      d: hints("zone-b"),
    },
    { cluster: "a c", local: "a b", reachable: "a b c", hasAny: true },
  ],
  ["no endpoints, Cluster", INTERNAL_CLUSTER, {}, { cluster: "", local: "absent", reachable: "", hasAny: false }],
  ["no endpoints, Local", BOTH_LOCAL, {}, { cluster: "", local: "", reachable: "", hasAny: false }],
];

describe("endpoint categories", () => {
  for (const [name, port, parts, expected] of rows) {
    test(name, () => {
      const { cluster, local, reachable, hasAny } = categorizeEndpoints(endpointsOf(parts), port, NODE);
      assert.deepEqual(
        { cluster: letters(cluster), local: letters(local), reachable: letters(reachable), hasAny },
        expected,
      );
    });
  }

  test("a service port without an entry in the endpoints map has nothing", () => {
    assert.deepEqual(categorizeEndpoints(undefined, INTERNAL_CLUSTER, NODE), {
      cluster: [],
      local: undefined,
      reachable: [],
      hasAny: false,
    });
  });
});

describe("topology", () => {
  const chosen = (
    parts: Record<string, Partial<Endpoint>>,
    node: { nodeName: string; zone: string | undefined } = NODE,
  ) => letters(categorizeEndpoints(endpointsOf(parts), INTERNAL_CLUSTER, node).cluster);
  const here = { nodeHints: ["me"], zoneHints: ["zone-a"] };
  const near = { nodeHints: ["other"], zoneHints: ["zone-a"] };
  const far = { nodeHints: ["third"], zoneHints: ["zone-b"] };

  test("the own node comes before the own zone", () => {
    assert.equal(chosen({ a: here, b: near, c: far }), "a");
  });
  test("no hint for this node: the zone decides", () => {
    assert.equal(chosen({ a: near, b: near, c: far }), "a b");
  });
  test("no hint for node or zone: all", () => {
    assert.equal(chosen({ a: far, b: far }), "a b");
  });
  test("one ready endpoint without node hint turns node mode off, and falls through to the zone", () => {
    assert.equal(chosen({ a: here, b: { zoneHints: ["zone-a"] }, c: far }), "a b");
  });
  test("one ready endpoint without zone hint turns zone mode off, but not node mode", () => {
    assert.equal(chosen({ a: near, b: { nodeHints: ["third"] }, c: far }), "a b c");
    assert.equal(chosen({ a: here, b: { nodeHints: ["third"] }, c: far }), "a");
  });
  test("one ready endpoint without any hint turns both off", () => {
    assert.equal(chosen({ a: here, b: READY }), "a b");
  });
  test("endpoints that are not ready neither enable nor disable it", () => {
    assert.equal(chosen({ a: here, b: NEITHER, c: far }), "a");
    assert.equal(chosen({ a: { ...here, ...NEITHER }, b: near, c: far }), "b");
    assert.equal(chosen({ a: { ...far, nodeHints: ["me"], ...NEITHER }, b: far, c: far }), "b c");
  });
  test("membership of any of several hints is enough", () => {
    assert.equal(chosen({ a: { zoneHints: ["zone-b", "zone-a"] }, b: { zoneHints: ["zone-b"] } }), "a");
  });
  test("a node without zone, or with an empty one, filters nothing, with any hints", () => {
    const parts = { a: { zoneHints: ["", "zone-a"] }, b: { zoneHints: ["zone-b"] } };
    assert.equal(chosen(parts, { nodeName: "me", zone: undefined }), "a b");
    assert.equal(chosen(parts, { nodeName: "me", zone: "" }), "a b");
    assert.equal(chosen({ a: { nodeHints: [""] }, b: { nodeHints: ["x"] } }, { nodeName: "", zone: undefined }), "a b");
  });
  test("the terminating fallback ignores it", () => {
    assert.equal(chosen({ a: { ...SERVING_TERMINATING, ...here }, b: { ...SERVING_TERMINATING, ...far } }), "a b");
  });
});

describe("for any endpoints and policy", () => {
  const endpoint = fc.record({
    isLocal: fc.boolean(),
    isReady: fc.boolean(),
    isServing: fc.boolean(),
    isTerminating: fc.boolean(),
    zoneHints: fc.option(fc.subarray(["zone-a", "zone-b"], { minLength: 1 }), { nil: undefined }),
    nodeHints: fc.option(fc.subarray(["me", "other"], { minLength: 1 }), { nil: undefined }),
  });
  const list = fc
    .array(endpoint, { maxLength: 8 })
    .map((parts) => parts.map((part, index) => makeEndpoint(`10.0.0.${index + 1}`, 80, part)));
  const port = fc.record({
    internalPolicyLocal: fc.boolean(),
    externalPolicyLocal: fc.boolean(),
    isExternallyAccessible: fc.boolean(),
  });

  test("reachable is the union of both sets, in order, once each; hasAny is whether a needed set could be filled", () => {
    fc.assert(
      fc.property(list, port, (endpoints, policy) => {
        const servicePort = makeServicePort(policy);
        const { cluster, local, reachable, hasAny } = categorizeEndpoints(endpoints, servicePort, NODE);
        const union = endpoints.filter((one) => cluster?.includes(one) === true || local?.includes(one) === true);
        assert.deepEqual(reachable, union);
        assert.equal(cluster !== undefined, usesClusterEndpoints(servicePort));
        assert.equal(local !== undefined, usesLocalEndpoints(servicePort));
        const isUsable = (one: Endpoint) => one.isReady || (one.isServing && one.isTerminating);
        assert.equal(hasAny, endpoints.some(isUsable));
        assert.ok(reachable.every(isUsable));
        assert.ok(local?.every((one) => one.isLocal) ?? true);
        // Topology and policies never make the Cluster set empty while an endpoint is usable.
        if (cluster !== undefined) assert.equal(cluster.length > 0, hasAny);
      }),
    );
  });
});
