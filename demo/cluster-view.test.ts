import assert from "node:assert/strict";
import { test } from "node:test";
import { exampleCluster, localPod, remotePod, viewOf } from "./testing/example-cluster.ts";

test("services that a proxy does not serve are left out", () => {
  const served = (spec: object, labels: object = {}) =>
    viewOf({ kind: "Service", metadata: { name: "s", labels }, spec: { ports: [{ port: 80 }], ...spec } }).services
      .length;
  assert.equal(served({ clusterIP: "10.96.0.1" }), 1);
  assert.equal(served({ clusterIP: "None" }), 0);
  assert.equal(served({}), 0);
  assert.equal(served({ clusterIP: "10.96.0.1", type: "ExternalName" }), 0);
  assert.equal(served({ clusterIP: "10.96.0.1" }, { "service.kubernetes.io/service-proxy-name": "other" }), 0);
});

test("endpoints have the API's defaults: absent conditions mean ready, and serving whether ready or not", () => {
  const endpoints = [localPod, { ...remotePod, conditions: { ready: false, terminating: true } }];
  const view = exampleCluster({}, endpoints);
  const [service] = view.services;
  const [port] = service?.ports ?? [];
  assert.ok(service && port);
  const found = view.endpointsOf(service, port, "IPv4");
  assert.deepEqual(
    found.map(({ pod, isReady, isServingTerminating }) => [pod, isReady, isServingTerminating]),
    [
      ["here", true, false],
      ["there", false, true],
    ],
  );
  assert.deepEqual(view.endpointsOf(service, port, "IPv6"), []);
});

test("an endpoint is a socket to serve, whichever service it belongs to", () => {
  const { sockets } = exampleCluster({}, [localPod, remotePod]);
  assert.deepEqual(
    sockets.map(({ pod, address, protocol, port }) => [pod, address, protocol, port]),
    [
      ["here", "10.180.0.11", "TCP", 8080],
      ["there", "10.180.1.11", "TCP", 8080],
    ],
  );
});
