import assert from "node:assert/strict";
import { test } from "node:test";
import { runAtOnce } from "../async/turns.ts";
import type { Flow } from "../net/flow.ts";
import { OwnedServices } from "./owned-services.ts";
import { servicePortName } from "./service-port-name.ts";
import { staleFlowTest } from "./stale-flows.ts";
import { ip, makeEndpoint, makeServicePort } from "./testing/records.ts";

const NODE = ip("192.168.1.10");

/** Service `a` has the node's own address as an external IP, with the same port as a node port of Service `b`. */
test("a flow to an address and port that one Service owns is not judged by the node port of another", () => {
  const a = makeServicePort({
    protocol: "UDP",
    port: 30100,
    name: servicePortName("ns1", "a", "media", "UDP"),
    clusterIP: ip("172.16.0.1"),
    externalIPs: [NODE],
  });
  const b = makeServicePort({
    protocol: "UDP",
    port: 53,
    nodePort: 30100,
    name: servicePortName("ns1", "b", "dns", "UDP"),
    clusterIP: ip("172.16.0.2"),
  });
  const owned = new OwnedServices();
  const declared = new Map([a, b].map((port) => [port.name.key, port]));
  runAtOnce(owned.update(declared.keys(), declared));
  const endpoints = new Map([
    [a.name.key, [makeEndpoint("10.0.0.1", 5000)]],
    [b.name.key, [makeEndpoint("10.0.0.2", 53)]],
  ]);
  const flow: Flow = {
    protocol: "UDP",
    sourceIP: ip("203.0.113.5"),
    sourcePort: 40000,
    destinationIP: NODE,
    destinationPort: 30100,
    // In every mode an address takes precedence over node ports: `a` answers.
    replySourceIP: ip("10.0.0.1"),
    replySourcePort: 5000,
    replyDestinationIP: ip("203.0.113.5"),
    replyDestinationPort: 40000,
  };
  const served = { ownerOf: owned.ownerOf.bind(owned), endpoints };
  assert.equal(staleFlowTest(served, new Set(), new Set([NODE]))(flow), false);
});
