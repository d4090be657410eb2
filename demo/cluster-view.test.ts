import assert from "node:assert/strict";
import { test } from "node:test";
import { clusterViewOf, parseDemoObject } from "./cluster-view.ts";
import { demoObject, exampleCluster, localPod, remotePod } from "./testing/example-cluster.ts";

test("services that a proxy does not serve are left out", () => {
  const served = (spec: object, labels: object = {}) =>
    clusterViewOf([demoObject({ kind: "Service", metadata: { name: "s", labels }, spec })]).services.length;
  assert.equal(served({ clusterIP: "10.96.0.1" }), 1);
  assert.equal(served({ clusterIP: "None" }), 0);
  assert.equal(served({}), 0);
  assert.equal(served({ clusterIP: "10.96.0.1", type: "ExternalName" }), 0);
  assert.equal(served({ clusterIP: "10.96.0.1" }, { "service.kubernetes.io/service-proxy-name": "other" }), 0);
});

test("endpoints have the API's defaults: absent conditions mean ready, serving follows ready", () => {
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
      ["there", false, false],
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

test("a broken object is reported with its kind and field, other kinds are passed over", () => {
  const problemOf = (port: object): string => {
    const parsed = parseDemoObject({ kind: "Service", metadata: { name: "s" }, spec: { ports: [port] } });
    return parsed?.ok === false ? parsed.problem : "";
  };
  assert.match(problemOf({ port: 70_000 }), /^Service: spec\.ports\[0\]\.port: /);
  assert.match(problemOf({ port: 80, nodePort: 300_800 }), /^Service: spec\.ports\[0\]\.nodePort: /);
  assert.equal(parseDemoObject({ kind: "ConfigMap", metadata: { name: "c" } }), undefined);
  assert.equal(parseDemoObject("text"), undefined);
});
