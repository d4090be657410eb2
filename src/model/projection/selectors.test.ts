import assert from "node:assert/strict";
import { test } from "node:test";
import { isEndpointSliceSelected } from "./endpoint-slice.ts";
import { isServiceSelected } from "./service.ts";

test("a Service with the proxy-name label is another proxy's, with any value", () => {
  const withLabels = (labels: unknown) => isServiceSelected({ metadata: { labels }, spec: { clusterIP: "10.0.0.1" } });
  assert.equal(withLabels({}), true);
  assert.equal(withLabels({ "service.kubernetes.io/service-proxy-name": "other" }), false);
  assert.equal(withLabels({ "service.kubernetes.io/service-proxy-name": "" }), false);
  assert.equal(withLabels({ "service.kubernetes.io/service-proxy-name": null }), false);
});

test("a headless Service is not shown", () => {
  assert.equal(isServiceSelected({ spec: { clusterIP: "None" } }), false);
  assert.equal(isServiceSelected({ spec: { clusterIPs: ["None"] } }), false);
  assert.equal(isServiceSelected({ spec: { clusterIP: "" } }), true);
  assert.equal(isServiceSelected({ metadata: { labels: { "service.kubernetes.io/headless": "" } } }), true);
});

test("a slice with the headless label is not shown", () => {
  assert.equal(isEndpointSliceSelected({ metadata: { labels: { "service.kubernetes.io/headless": "" } } }), false);
  assert.equal(isEndpointSliceSelected({ metadata: { labels: {} } }), true);
});

test("nonsense is left to other checks", () => {
  for (const raw of [null, 1, "x", [], { metadata: 1, spec: 2 }]) {
    assert.equal(isServiceSelected(raw), true);
    assert.equal(isEndpointSliceSelected(raw), true);
  }
});
