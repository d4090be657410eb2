import assert from "node:assert/strict";
import { test } from "node:test";
import { memoryConntrack } from "../../../testkit/fakes/conntrack/memory-conntrack.ts";
import { FakeClock } from "../../agent/sync/testing/fake-clock.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { routeServicePort } from "../../model/service-port-routing.ts";
import { ip, makeEndpoint, makeServicePort } from "../../model/testing/records.ts";
import type { Flow } from "../../net/flow.ts";
import { portalsOf } from "./portals.ts";
import { staleFlowsOf, UdpPortals } from "./stale-flows.ts";

const HOST = new Set([ip("192.168.1.5")]);
const { signal } = new AbortController();

/** A flow from a client that the kernel sends to `reply`. */
function flow(to: string, port: number, reply: string, replyPort: number): Flow {
  return {
    protocol: "UDP",
    sourceIP: ip("172.16.9.9"),
    sourcePort: 1000,
    destinationIP: ip(to),
    destinationPort: port,
    replySourceIP: ip(reply),
    replySourcePort: replyPort,
    replyDestinationIP: ip("172.16.9.9"),
    replyDestinationPort: 1000,
  };
}

const dns = makeServicePort({ protocol: "UDP", port: 53, nodePort: 30053 });
const SERVED = [makeEndpoint("10.1.0.1", 53, { isLocal: true })];

function portalsWith(port: ServicePort, endpoints: readonly Endpoint[]) {
  const routing = routeServicePort(port, endpoints, { nodeName: "node-a", zone: undefined });
  return portalsOf(port, routing, { kind: "all" });
}

const portals = portalsWith(dns, SERVED);

test("a flow of a served portal is stale unless it leads to the proxy's port", () => {
  const udp = new UdpPortals();
  udp.lost(dns.name, portals);
  udp.served(dns.name, portals, { cluster: 40001 });
  const isStale = (...args: Parameters<typeof flow>) => udp.isStale(flow(...args), HOST);
  assert.equal(isStale("172.16.0.1", 53, "192.168.1.5", 40001), false);
  assert.equal(isStale("172.16.0.1", 53, "192.168.1.5", 40002), true);
  assert.equal(isStale("172.16.0.1", 53, "172.16.0.1", 53), true);
  assert.equal(isStale("192.168.1.5", 30053, "192.168.1.5", 40001), false);
  assert.equal(isStale("192.168.1.5", 30053, "192.168.1.5", 30053), true);
  // Another node's node port, and another Service's address.
  assert.equal(isStale("192.168.1.6", 30053, "192.168.1.6", 30053), false);
  assert.equal(isStale("172.16.0.2", 53, "10.0.0.1", 53), false);
});

test("the flows of either lane are right where clients of both are served; without endpoints none are", () => {
  const port = { ...dns, externalPolicyLocal: true, isExternallyAccessible: true };
  const ports = { cluster: 40001, local: 40002 };
  const isStale = (endpoints: readonly Endpoint[], replyPort: number) => {
    const udp = new UdpPortals();
    udp.served(port.name, portalsWith(port, endpoints), ports);
    return udp.isStale(flow("192.168.1.5", 30053, "192.168.1.5", replyPort), HOST);
  };
  assert.deepEqual(
    [40001, 40002].map((replyPort) => isStale(SERVED, replyPort)),
    [false, false],
  );
  const elsewhere = [makeEndpoint("10.1.1.1", 53)];
  assert.deepEqual(
    [40001, 40002].map((replyPort) => isStale(elsewhere, replyPort)),
    [false, true],
  );
  assert.deepEqual(
    [40001, 40002].map((replyPort) => isStale([], replyPort)),
    [true, true],
  );
});

test("an address that a Service has twice, with two policies, keeps the flows of both", () => {
  const twice = { externalIPs: [dns.clusterIP], internalPolicyLocal: true, isExternallyAccessible: true };
  const port = { ...dns, ...twice };
  const udp = new UdpPortals();
  udp.served(port.name, portalsWith(port, SERVED), { cluster: 40001, local: 40002 });
  const stale = [40001, 40002, 40003].map((replyPort) =>
    udp.isStale(flow(dns.clusterIP, 53, "192.168.1.5", replyPort), HOST),
  );
  assert.deepEqual(stale, [false, false, true]);
});

test("a flow of a portal that is no longer served is stale if it is translated", () => {
  const udp = new UdpPortals();
  udp.lost(dns.name, portals);
  assert.equal(udp.isStale(flow("172.16.0.1", 53, "192.168.1.5", 40001), HOST), true);
  assert.equal(udp.isStale(flow("172.16.0.1", 53, "172.16.0.1", 53), HOST), false);
});

test("a flow of a service that went with the process before does not reach who has its proxy port now", () => {
  const udp = new UdpPortals();
  udp.served(dns.name, portals, { cluster: 40001 });
  const isStale = (...args: Parameters<typeof flow>) => udp.isStale(flow(...args), HOST);
  assert.equal(isStale("172.16.0.9", 53, "192.168.1.5", 40001), true);
  // To another proxy port, to a pod, and to the proxy port itself.
  assert.equal(isStale("172.16.0.9", 53, "192.168.1.5", 40002), false);
  assert.equal(isStale("172.16.0.9", 53, "10.0.0.1", 40001), false);
  assert.equal(isStale("192.168.1.5", 40001, "192.168.1.5", 40001), false);
});

test("TCP has no flows to be cleaned, and then the table is not even read", async () => {
  const udp = new UdpPortals();
  const web = makeServicePort();
  udp.served(web.name, portalsWith(web, SERVED), { cluster: 40001 });
  const table = memoryConntrack();
  table.readFlows = () => assert.fail("read");
  await staleFlowsOf(table, "IPv4", new FakeClock(), silentLogger)(udp, HOST, signal);
});

test("a flow that an endpoint has not answered yet has a second for it", async () => {
  const udp = new UdpPortals();
  udp.served(dns.name, portals, { cluster: 40001 });
  const led = { ...flow("172.16.0.1", 53, "10.1.0.1", 53), isAnswered: false };
  const others = [
    { ...led, sourcePort: 1001, replyDestinationPort: 1001, isAnswered: true },
    // To a proxy port of an earlier run, where nothing answers.
    { ...led, sourcePort: 1002, replyDestinationPort: 1002, replySourceIP: ip("192.168.1.5"), replySourcePort: 40002 },
  ];
  const table = memoryConntrack([led, ...others]);
  const clock = new FakeClock();
  await staleFlowsOf(table, "IPv4", clock, silentLogger)(udp, HOST, signal);
  assert.deepEqual(table.flows, [led]);
  await clock.advance(1000);
  assert.deepEqual(table.flows, []);
});

test("a table that cannot be read costs a line in the log", async () => {
  const udp = new UdpPortals();
  udp.served(dns.name, portals, { cluster: 40001 });
  const table = memoryConntrack();
  table.readFlows = () => Promise.reject(new Error("not permitted"));
  const errors: string[] = [];
  const log: Logger = { ...silentLogger, error: (message, error) => void errors.push(`${message}: ${error}`) };
  await staleFlowsOf(table, "IPv4", new FakeClock(), log)(udp, HOST, signal);
  assert.deepEqual(errors, [
    "Failed to delete stale UDP flows from connection tracking; some may remain: Error: not permitted",
  ]);
});
