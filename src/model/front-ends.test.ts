import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FrontEndIndex, frontEndsOf } from "./front-ends.ts";
import type { ServicePort } from "./service-port.ts";
import { ip, makeServicePort } from "./testing/records.ts";

test("a port answers at its cluster IP, external IPs, load-balancer VIPs and its node port on every address", () => {
  const port = makeServicePort({
    protocol: "UDP",
    clusterIP: ip("fd00::1"),
    port: 53,
    externalIPs: [ip("fd00::2")],
    loadBalancerVIPs: [ip("fd00::3")],
    nodePort: 30053,
  });
  assert.deepEqual(frontEndsOf(port), ["udp [fd00::1]:53", "udp [fd00::2]:53", "udp [fd00::3]:53", "udp *:30053"]);
  assert.deepEqual(frontEndsOf(makeServicePort()), ["tcp 172.16.0.1:80"]);
});

test("two ports conflict where address, port and protocol are the same, whatever kind of address it is", () => {
  const index = new FrontEndIndex();
  index.set("b", makeServicePort({ clusterIP: ip("10.0.0.1") }));
  index.set("a", makeServicePort({ clusterIP: ip("10.0.0.2"), externalIPs: [ip("10.0.0.1")] }));
  index.set("other-protocol", makeServicePort({ clusterIP: ip("10.0.0.1"), protocol: "UDP" }));
  index.set("other-port", makeServicePort({ clusterIP: ip("10.0.0.1"), port: 81 }));
  assert.deepEqual(index.conflictsOf("a"), [{ frontEnd: "tcp 10.0.0.1:80", claimants: ["a", "b"] }]);
  assert.deepEqual(index.conflictsOf("b"), index.conflictsOf("a"));
  assert.deepEqual(index.conflictsOf("other-protocol"), []);
  assert.deepEqual(index.conflictsOf("other-port"), []);
});

test("an address that a port claims twice is no conflict", () => {
  const index = new FrontEndIndex();
  const twice = makeServicePort({ externalIPs: [ip("9.9.9.9")], loadBalancerVIPs: [ip("9.9.9.9")] });
  index.set("a", twice);
  assert.deepEqual(index.conflictsOf("a"), []);
  index.set("b", makeServicePort({ clusterIP: ip("9.9.9.9") }));
  assert.equal(index.conflictsOf("a").length, 1);
  index.set("a", makeServicePort());
  assert.deepEqual(index.conflictsOf("b"), []);
});

/** The claimants of every front end, the simple way. */
function conflictsIn(ports: ReadonlyMap<string, ServicePort>, key: string) {
  const port = ports.get(key);
  const ends = port === undefined ? [] : [...new Set(frontEndsOf(port))];
  const found = ends.map((frontEnd) => ({
    frontEnd,
    claimants: [...ports.keys()]
      .filter((other) => frontEndsOf(ports.get(other) ?? makeServicePort()).includes(frontEnd))
      .sort(),
  }));
  return found.filter(({ claimants }) => claimants.length > 1);
}

test("after any history the index knows the conflicts that there are", () => {
  const address = fc.constantFrom("10.0.0.1", "10.0.0.2", "10.0.0.3").map(ip);
  const port = fc.record({
    clusterIP: address,
    externalIPs: fc.array(address, { maxLength: 2 }),
    loadBalancerVIPs: fc.array(address, { maxLength: 2 }),
    nodePort: fc.constantFrom(0, 30000),
  });
  const keys = ["a", "b", "c", "d"];
  const step = fc.tuple(fc.constantFrom(...keys), fc.option(port, { nil: undefined }));
  fc.assert(
    fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
      const index = new FrontEndIndex();
      const ports = new Map<string, ServicePort>();
      for (const [key, overrides] of steps) {
        const value = overrides === undefined ? undefined : makeServicePort(overrides);
        index.set(key, value);
        if (value === undefined) ports.delete(key);
        else ports.set(key, value);
        for (const one of keys) assert.deepEqual(index.conflictsOf(one), conflictsIn(ports, one));
      }
    }),
  );
});
