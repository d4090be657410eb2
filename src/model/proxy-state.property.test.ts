/** Any history of events and syncs ends in the state that the final objects alone would produce. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import fc from "../../testkit/support/fast-check.ts";
import { silentLogger } from "../logging/logger.ts";
import type { IpFamily } from "../net/ip.ts";
import { PROTOCOLS } from "../net/protocol.ts";
import { frontendKey, ownedFrontends } from "./frontend.ts";
import type { ObjectEvent } from "./object-source.ts";
import { type EndpointSliceRecord, objectKeyText, type ServiceRecord } from "./objects.ts";
import { type AppliedChanges, ProxyState } from "./proxy-state.ts";
import { makeEndpointRecord, makeService, makeSlice } from "./testing/records.ts";

const NODE = "node-a";

const servicePort = fc.record({
  name: fc.constantFrom("", "p", "dns"),
  protocol: fc.constantFrom("TCP", "UDP"),
  port: fc.constantFrom(53, 80),
  nodePort: fc.constantFrom(0, 0, 30080),
});

const service: fc.Arbitrary<ServiceRecord> = fc
  .record({
    name: fc.constantFrom("svc1", "svc2", "svc3"),
    type: fc.constantFrom("ClusterIP", "LoadBalancer", "LoadBalancer", "ExternalName"),
    clusterIP: fc.constantFrom("172.16.0.1", "172.16.0.1", "172.16.0.2", "None", ""),
    ipFamilies: fc.constantFrom<IpFamily[][]>(["IPv4"], ["IPv4", "IPv6"], ["IPv6", "IPv4"], []),
    ports: fc.array(servicePort, { maxLength: 3 }),
    externalIPs: fc.subarray(["9.9.9.9", "fd00::9", "junk"]),
    externalTrafficPolicy: fc.constantFrom("Cluster", "Local"),
    internalTrafficPolicy: fc.constantFrom("Cluster", "Local"),
    healthCheckNodePort: fc.constantFrom(0, 31000, 31001),
  })
  .map((parts) => {
    const clusterIPs = parts.ipFamilies.map((family) => (family === "IPv4" ? parts.clusterIP : "fd00::1"));
    return makeService({ ...parts, clusterIPs });
  });

const endpoint = fc
  .record({
    address: fc.constantFrom("10.0.0.1", "10.0.0.2", "10.0.0.10"),
    nodeName: fc.constantFrom("", NODE, "node-b"),
    ready: fc.boolean(),
    serving: fc.boolean(),
    terminating: fc.boolean(),
    zoneHints: fc.option(fc.subarray(["a", "b"]), { nil: undefined }),
  })
  .map(({ address, ...conditions }) => makeEndpointRecord(address, conditions));

const slicePort = fc.record({
  name: fc.constantFrom("", "p", "dns"),
  protocol: fc.constantFrom("TCP", "UDP"),
  port: fc.constantFrom(53, 80, null),
});

const slice: fc.Arbitrary<EndpointSliceRecord> = fc
  .record({
    name: fc.constantFrom("slice-a", "slice-b", "slice-c", "slice-d"),
    // Most slices keep their Service; some are relabelled.
    serviceName: fc.constantFrom("svc1", "svc1", "svc2", "svc4", ""),
    addressType: fc.constantFrom("IPv4", "IPv4", "IPv4", "IPv6", "FQDN"),
    ports: fc.array(slicePort, { maxLength: 3 }),
    endpoints: fc.array(endpoint, { maxLength: 4 }),
    resourceVersion: fc.constantFrom("1", "2"),
  })
  .map((parts) => makeSlice(parts));

type Step =
  | { readonly kind: "write-service"; readonly object: ServiceRecord }
  | { readonly kind: "delete-service"; readonly name: string }
  | { readonly kind: "write-slice"; readonly object: EndpointSliceRecord }
  | { readonly kind: "delete-slice"; readonly name: string }
  | { readonly kind: "resync" | "apply" };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: service.map((object): Step => ({ kind: "write-service", object })) },
  { weight: 1, arbitrary: fc.constantFrom("svc1", "svc2").map((name): Step => ({ kind: "delete-service", name })) },
  { weight: 6, arbitrary: slice.map((object): Step => ({ kind: "write-slice", object })) },
  { weight: 2, arbitrary: fc.constantFrom("slice-a", "slice-b").map((name): Step => ({ kind: "delete-slice", name })) },
  { weight: 1, arbitrary: fc.constant<Step>({ kind: "resync" }) },
  { weight: 4, arbitrary: fc.constant<Step>({ kind: "apply" }) },
);

function makeState(family: IpFamily) {
  return new ProxyState({ family, nodeName: NODE, allowExternalIPs: true, now: () => 0, log: silentLogger });
}

/** The objects of a source, and the events that writes and deletes cause. */
class Cluster<T extends { readonly namespace: string; readonly name: string }> {
  readonly objects = new Map<string, T>();

  write(object: T): ObjectEvent<T> {
    const key = objectKeyText(object);
    const old = this.objects.get(key);
    this.objects.set(key, object);
    return old === undefined ? { kind: "add", object } : { kind: "update", old, object };
  }

  delete(name: string): ObjectEvent<T> | undefined {
    const object = this.objects.get(`ns1/${name}`);
    this.objects.delete(`ns1/${name}`);
    return object === undefined ? undefined : { kind: "delete", object };
  }

  resync(): ObjectEvent<T>[] {
    return [...this.objects.values()].map((object) => ({
      kind: "update",
      old: object,
      object: structuredClone(object),
    }));
  }
}

class History {
  readonly state: ProxyState;
  readonly services = new Cluster<ServiceRecord>();
  readonly slices = new Cluster<EndpointSliceRecord>();
  readonly #family: IpFamily;

  constructor(family: IpFamily) {
    this.#family = family;
    this.state = makeState(family);
  }

  run(one: Step): void {
    switch (one.kind) {
      case "write-service":
        this.state.onService(this.services.write(one.object));
        return;
      case "write-slice":
        this.state.onEndpointSlice(this.slices.write(one.object));
        return;
      case "delete-service": {
        const event = this.services.delete(one.name);
        if (event !== undefined) this.state.onService(event);
        return;
      }
      case "delete-slice": {
        const event = this.slices.delete(one.name);
        if (event !== undefined) this.state.onEndpointSlice(event);
        return;
      }
      case "resync":
        for (const event of this.services.resync()) this.state.onService(event);
        for (const event of this.slices.resync()) this.state.onEndpointSlice(event);
        return;
      case "apply":
        this.apply();
    }
  }

  apply(): void {
    const before = snapshot(this.state);
    const changes = this.state.applyChanges();
    const after = snapshot(this.state);
    assert.deepEqual(after, snapshot(this.#rebuilt()));
    assertRecomputed(this.state);
    assertChanges(before, after, changes);
  }

  #rebuilt(): ProxyState {
    const fresh = makeState(this.#family);
    for (const object of this.services.objects.values()) fresh.onService({ kind: "add", object });
    for (const object of this.slices.objects.values()) fresh.onEndpointSlice({ kind: "add", object });
    fresh.applyChanges();
    return fresh;
  }
}

function snapshot(state: ProxyState) {
  return {
    services: new Map(state.services),
    endpoints: new Map(state.endpoints),
    endpointCount: state.endpointCount,
    healthCheckNodePorts: new Map(state.healthCheckNodePorts),
    localReadyCounts: new Map(state.localReadyCounts),
  };
}

/** Recomputes the totals from the whole live maps. */
function assertRecomputed(state: ProxyState): void {
  let endpointCount = 0;
  const healthCheckNodePorts = new Map<string, number>();
  const localReady = new Map<string, Set<string>>();
  for (const [key, port] of state.services) {
    endpointCount += state.endpoints.get(key)?.length ?? 0;
    if (port.healthCheckNodePort !== 0) healthCheckNodePorts.set(port.name.service, port.healthCheckNodePort);
  }
  for (const [key, list] of state.endpoints) {
    const service = /^[^/]+\/[^/:]+/.exec(key)?.[0] ?? "";
    for (const { ip, isLocal, isReady } of list) {
      if (!isLocal || !isReady) continue;
      localReady.set(service, (localReady.get(service) ?? new Set()).add(ip));
    }
    const texts = list.map(({ text }) => text);
    assert.deepEqual(texts, [...new Set(texts)].sort());
    assert.notEqual(texts.length, 0);
  }
  assert.equal(state.endpointCount, endpointCount);
  assert.deepEqual(state.healthCheckNodePorts, healthCheckNodePorts);
  assert.deepEqual(state.localReadyCounts, new Map([...localReady].map(([service, ips]) => [service, ips.size])));
  for (const protocol of PROTOCOLS) {
    const ports = [...state.services.values()].filter((port) => port.protocol === protocol);
    assert.equal(state.portCount(protocol), ports.length);
  }
  for (const port of state.services.values()) {
    for (const frontend of ownedFrontends(port)) {
      assert.equal(state.ownerOf(frontendKey(port.protocol, frontend)), port.name.key);
    }
  }
}

type Snapshot = ReturnType<typeof snapshot>;

function assertChanges(before: Snapshot, after: Snapshot, changes: AppliedChanges): void {
  const differing = new Set([
    ...differingKeys(before.services, after.services),
    ...differingKeys(before.endpoints, after.endpoints),
  ]);
  assert.deepEqual(changes.changedPorts, differing);
  for (const key of differing) {
    const owner = [...changes.updatedServices].find((one) => key.startsWith(`${one}:`) || key.startsWith(`${one}/`));
    const losses = ({ services }: Snapshot) => services.get(key)?.lostFrontends;
    const isMovedFrontend = !isDeepStrictEqual(losses(before), losses(after));
    assert.ok(
      owner !== undefined || isMovedFrontend,
      `${key} changed, but its service is not among the updated ones, and no frontend came or went`,
    );
  }
  const hasChange = differingKeys(before.endpoints, after.endpoints).some((key) => !key.endsWith("/TCP"));
  assert.ok(changes.conntrackCleanupRequired || !hasChange);
  const owned = (services: typeof before.services, key: string): readonly string[] => {
    const port = services.get(key);
    if (port === undefined || port.protocol === "TCP") return [];
    return ownedFrontends(port).map((frontend) => frontendKey(port.protocol, frontend));
  };
  const gone = [...before.services.keys()].flatMap((key) => {
    const kept = owned(after.services, key);
    return owned(before.services, key).filter((frontend) => !kept.includes(frontend));
  });
  assert.deepEqual(changes.goneFrontends, new Set(gone));
  const isNew = (key: string) => owned(after.services, key).some((one) => !owned(before.services, key).includes(one));
  if ([...after.services.keys()].some(isNew)) assert.ok(changes.conntrackCleanupRequired);
}

function differingKeys(before: ReadonlyMap<string, unknown>, after: ReadonlyMap<string, unknown>): string[] {
  return [...new Set([...before.keys(), ...after.keys()])].filter((key) => {
    try {
      assert.deepEqual(before.get(key), after.get(key));
      return false;
    } catch {
      return true;
    }
  });
}

for (const family of ["IPv4", "IPv6"] as const) {
  test(`${family}: after every sync of any history the state equals one built from the current objects`, () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40, size: "max" }), (steps) => {
        const history = new History(family);
        for (const one of steps) history.run(one);
        history.apply();
        for (const object of [...history.services.objects.values()])
          history.run({ kind: "delete-service", name: object.name });
        for (const object of [...history.slices.objects.values()])
          history.run({ kind: "delete-slice", name: object.name });
        history.apply();
        assert.equal(history.state.services.size + history.state.endpoints.size, 0);
      }),
      { numRuns: 200 },
    );
  });
}
