import assert from "node:assert/strict";
import { test } from "node:test";
import type { Endpoint } from "./endpoint.ts";
import { endpointReasons, topologyReason } from "./endpoint-reasons.ts";
import { categorizeEndpoints } from "./service-port-routing.ts";
import { makeEndpoint, makeServicePort } from "./testing/records.ts";

const NODE = { nodeName: "me", zone: "zone-a" };
const PORT = makeServicePort({ externalPolicyLocal: true, isExternallyAccessible: true, nodePort: 30080 });

function reasonsOf(...parts: Partial<Endpoint>[]): string[] {
  const all = parts.map((part, index) => makeEndpoint(`10.0.0.${index + 1}`, 80, part));
  const categories = categorizeEndpoints(all, PORT, NODE);
  return endpointReasons(all, categories, topologyReason(all, NODE).mode).map(({ cluster, local }) =>
    [cluster, local].map((use) => `${use?.isUsed === true ? "+" : "-"}${use?.reason}`).join(" "),
  );
}

const LOCAL = { isLocal: true };
const LEAVING = { isReady: false, isTerminating: true };
const GONE = { isReady: false, isServing: false, isTerminating: true };

test("each policy has its own reason for an endpoint", () => {
  assert.deepEqual(reasonsOf({}, LOCAL, { ...LOCAL, isReady: false, isServing: false }), [
    "+ready -not-local",
    "+ready +ready",
    "-not-ready -not-ready",
  ]);
});

test("an endpoint that terminates is used where nothing else is there", () => {
  assert.deepEqual(reasonsOf({}, { ...LOCAL, ...LEAVING }), ["+ready -not-local", "-terminating +last-resort"]);
  assert.deepEqual(reasonsOf(LEAVING, GONE), ["+last-resort -not-local", "-terminated -not-local"]);
});

test("hints are a reason where they count, and say why where they do not", () => {
  const near = { zoneHints: ["zone-a"] };
  assert.deepEqual(reasonsOf(near, { zoneHints: ["zone-b"] }), ["+ready -not-local", "-other-zone -not-local"]);
  assert.deepEqual(reasonsOf({ nodeHints: ["me"] }, { nodeHints: ["you"] })[1], "-other-node -not-local");
  const bare = makeEndpoint("10.0.0.2");
  const hinted = makeEndpoint("10.0.0.1", 80, near);
  assert.deepEqual(topologyReason([hinted, bare], NODE).ignored, [
    { kind: "zone", why: { code: "missing", endpoint: bare } },
  ]);
  assert.deepEqual(topologyReason([hinted], { ...NODE, zone: "zone-c" }).ignored, [
    { kind: "zone", why: { code: "none-for-us" } },
  ]);
  assert.deepEqual(topologyReason([hinted], { ...NODE, zone: undefined }).ignored, [
    { kind: "zone", why: { code: "zone-unknown" } },
  ]);
  assert.deepEqual(topologyReason([hinted], NODE).ignored, []);
});
