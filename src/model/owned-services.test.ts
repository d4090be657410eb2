import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../testkit/support/fast-check.ts";
import { runAtOnce } from "../async/turns.ts";
import { declaredFrontends, frontendKey, onePerDestination, ownedFrontends } from "./frontend.ts";
import { OwnedServices } from "./owned-services.ts";
import type { ServicePort } from "./service-port.ts";
import { servicePortName } from "./service-port-name.ts";
import { ip, makeServicePort } from "./testing/records.ts";

function named(name: string, overrides: Partial<ServicePort> = {}, port = ""): ServicePort {
  return makeServicePort({ ...overrides, name: servicePortName("ns", name, port, overrides.protocol ?? "TCP") });
}

/** Declarations that are changed together. */
class Model {
  readonly declared = new Map<string, ServicePort>();
  readonly owned = new OwnedServices();

  apply(add: readonly ServicePort[], remove: readonly ServicePort[] = []) {
    for (const port of remove) this.declared.delete(port.name.key);
    for (const port of add) this.declared.set(port.name.key, port);
    const keys = [...add, ...remove].map(({ name }) => name.key);
    return runAtOnce(this.owned.update(keys, this.declared));
  }

  owns({ name }: ServicePort): string[] {
    const port = this.owned.services.get(name.key);
    return port === undefined ? [] : ownedFrontends(port).map((one) => frontendKey(port.protocol, one));
  }
}

test("a port answers at its cluster IP, external IPs, load-balancer VIPs and its node port on every address", () => {
  const port = makeServicePort({
    protocol: "UDP",
    clusterIP: ip("fd00::1"),
    port: 53,
    externalIPs: [ip("fd00::2")],
    loadBalancerVIPs: [ip("fd00::3")],
    nodePort: 30053,
  });
  const keys = (one: ServicePort) => declaredFrontends(one).map((frontend) => frontendKey(one.protocol, frontend));
  assert.deepEqual(keys(port), ["udp [fd00::1]:53", "udp [fd00::2]:53", "udp [fd00::3]:53", "udp *:30053"]);
  assert.deepEqual(keys(makeServicePort()), ["tcp 172.16.0.1:80"]);
});

test("an address that one Service states twice is one destination, of the kind with precedence", () => {
  const [first, second, third] = [ip("10.0.0.1"), ip("10.0.0.2"), ip("10.0.0.3")];
  const port = named("web", { clusterIP: first, externalIPs: [first, second, third], loadBalancerVIPs: [second] });
  const kinds = onePerDestination(port, declaredFrontends(port)).map(({ kind, address }) => [address, kind]);
  assert.deepEqual(kinds, [
    [first, "cluster-ip"],
    [second, "load-balancer"],
    [third, "external-ip"],
  ]);
});

test("a cluster IP goes before a load-balancer IP, this before an external IP, and then the first name decides", () => {
  const shared = ip("10.0.0.1");
  const external = named("a", { clusterIP: ip("10.0.0.11"), externalIPs: [shared] });
  const external2 = named("b", { clusterIP: ip("10.0.0.12"), externalIPs: [shared] });
  const balancer = named("c", { clusterIP: ip("10.0.0.13"), loadBalancerVIPs: [shared] });
  const cluster = named("d", { clusterIP: shared });
  const model = new Model();
  const key = "tcp 10.0.0.1:80";
  for (const port of [external2, external, balancer, cluster]) {
    model.apply([port]);
    for (const other of model.declared.values()) assert.equal(model.owns(other).includes(key), other === port);
  }
  for (const port of [cluster, balancer, external, external2]) {
    assert.ok(model.owns(port).includes(key));
    model.apply([], [port]);
  }
});

test("other ports and protocols of one address are other frontends, and a port's own repetition is no conflict", () => {
  const model = new Model();
  const a = named("a", { externalIPs: [ip("10.0.0.1")], loadBalancerVIPs: [ip("10.0.0.1")] });
  const { conflicts } = model.apply([
    a,
    named("udp", { clusterIP: ip("10.0.0.1"), protocol: "UDP" }),
    named("other", { clusterIP: ip("10.0.0.1"), port: 81 }),
  ]);
  assert.deepEqual(conflicts, []);
  assert.equal(model.owned.services.get(a.name.key), a);
});

test("what a port loses is told once, with both Services; renaming a port is no conflict", () => {
  const model = new Model();
  const victim = named("b", { clusterIP: ip("10.0.0.1") });
  const taker = named("a", { clusterIP: ip("10.0.0.2"), externalIPs: [ip("10.0.0.1")] });
  model.apply([taker]);
  const { conflicts, changedPorts } = model.apply([victim]);
  assert.deepEqual([...changedPorts].sort(), ["ns/a/TCP", "ns/b/TCP"]);
  assert.deepEqual(conflicts, [
    {
      frontend: "tcp 10.0.0.1:80",
      loser: taker.name,
      loserKind: "external-ip",
      owner: victim.name,
      ownerKind: "cluster-ip",
    },
  ]);
  assert.deepEqual(model.apply([{ ...taker, nodePort: 30080 }]).conflicts, []);
  assert.deepEqual(model.apply([named("b", { clusterIP: ip("10.0.0.1") }, "renamed")], [victim]).conflicts, []);
});

/** A simple reference implementation of ownership. */
function ownersIn(ports: ReadonlyMap<string, ServicePort>): Map<string, string> {
  const rank = { "cluster-ip": 0, "load-balancer": 1, "external-ip": 2, "node-port": 3 };
  const all = [...ports].flatMap(([key, port]) =>
    declaredFrontends(port).map((one) => ({ key, rank: rank[one.kind], frontend: frontendKey(port.protocol, one) })),
  );
  all.sort((a, b) => b.rank - a.rank || (a.key < b.key ? 1 : -1));
  return new Map(all.map(({ frontend, key }) => [frontend, key]));
}

test("after any history each frontend has the owner that the declarations give it, and changes are told", () => {
  const address = fc.constantFrom("10.0.0.1", "10.0.0.2", "10.0.0.3").map(ip);
  const overrides = fc.record({
    clusterIP: address,
    externalIPs: fc.array(address, { maxLength: 2 }),
    loadBalancerVIPs: fc.array(address, { maxLength: 2 }),
    nodePort: fc.constantFrom(0, 30000),
  });
  const change = fc.tuple(fc.constantFrom("a", "b", "c", "d"), fc.option(overrides, { nil: undefined }));
  fc.assert(
    fc.property(fc.array(fc.array(change, { minLength: 1, maxLength: 3 }), { maxLength: 12 }), (batches) => {
      const model = new Model();
      for (const batch of batches) {
        const before = new Map(model.owned.services);
        for (const [name, one] of batch) {
          const port = named(name, one);
          if (one === undefined) model.declared.delete(port.name.key);
          else model.declared.set(port.name.key, port);
        }
        const keys = batch.map(([name]) => named(name).name.key);
        const { changedPorts } = runAtOnce(model.owned.update(keys, model.declared));
        const owners = ownersIn(model.declared);
        for (const [key, port] of model.declared) {
          const expected = declaredFrontends(port).filter((one) => owners.get(frontendKey("TCP", one)) === key);
          assert.deepEqual(ownedFrontends(model.owned.services.get(key) ?? port), expected);
        }
        for (const key of new Set([...before.keys(), ...model.owned.services.keys()])) {
          if (before.get(key) !== model.owned.services.get(key)) assert.ok(changedPorts.has(key), key);
        }
      }
    }),
  );
});
