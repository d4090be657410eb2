import assert from "node:assert/strict";
import { test } from "node:test";
import { memoryConntrack } from "../../kernel/conntrack/memory-conntrack.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { ip, makeServicePort } from "../../model/testing/records.ts";
import { portalsOf } from "./portals.ts";
import { staleFlowsOf, UdpPortals } from "./stale-flows.ts";

const HOST = new Set([ip("192.168.1.5")]);
const { signal } = new AbortController();

/** A flow from a client, which the kernel sends to `reply`. */
function flow(to: string, port: number, reply: string, replyPort: number) {
  return {
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
const portals = portalsOf(dns, { kind: "all" });

test("a flow of a served portal is stale unless it leads to the proxy's port", () => {
  const udp = new UdpPortals();
  udp.lost(dns.name, portals);
  udp.served(dns.name, portals, 40001);
  const isStale = (...args: Parameters<typeof flow>) => udp.isStale(flow(...args), HOST);
  assert.equal(isStale("172.16.0.1", 53, "192.168.1.5", 40001), false);
  assert.equal(isStale("172.16.0.1", 53, "192.168.1.5", 40002), true);
  assert.equal(isStale("172.16.0.1", 53, "172.16.0.1", 53), true);
  assert.equal(isStale("192.168.1.5", 30053, "192.168.1.5", 40001), false);
  assert.equal(isStale("192.168.1.5", 30053, "192.168.1.5", 30053), true);
  // Another machine's node port, and another service's address.
  assert.equal(isStale("192.168.1.6", 30053, "192.168.1.6", 30053), false);
  assert.equal(isStale("172.16.0.2", 53, "10.0.0.1", 53), false);
});

test("a flow of a portal that nobody serves any more is stale if it is translated", () => {
  const udp = new UdpPortals();
  udp.lost(dns.name, portals);
  assert.equal(udp.isStale(flow("172.16.0.1", 53, "192.168.1.5", 40001), HOST), true);
  assert.equal(udp.isStale(flow("172.16.0.1", 53, "172.16.0.1", 53), HOST), false);
});

test("TCP has no flows to be cleaned, and then the table is not even read", async () => {
  const udp = new UdpPortals();
  const web = makeServicePort();
  udp.served(web.name, portalsOf(web, { kind: "all" }), 40001);
  const table = memoryConntrack();
  table.forEachUdpFlow = () => assert.fail("read");
  await staleFlowsOf(table, "IPv4", silentLogger).delete(udp, HOST, signal);
});

test("a table that cannot be read costs a line in the log", async () => {
  const udp = new UdpPortals();
  udp.served(dns.name, portals, 40001);
  const table = memoryConntrack();
  table.forEachUdpFlow = () => Promise.reject(new Error("not permitted"));
  const errors: string[] = [];
  const log: Logger = { ...silentLogger, error: (message, error) => void errors.push(`${message}: ${error}`) };
  await staleFlowsOf(table, "IPv4", log).delete(udp, HOST, signal);
  assert.deepEqual(errors, ["Stale UDP flows may be left: connection tracking refused: Error: not permitted"]);
});
