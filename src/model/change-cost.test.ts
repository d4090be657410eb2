/** One change costs the same in a small and in a large cluster, measured in accesses rather than time. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { runAtOnce } from "../async/turns.ts";
import { silentLogger } from "../logging/logger.ts";
import type { Endpoint } from "./endpoint.ts";
import { EndpointsChangeTracker } from "./endpoints-change-tracker.ts";
import { ServiceChangeTracker } from "./service-change-tracker.ts";
import type { ServicePort } from "./service-port.ts";
import { makeEndpointRecord, makeService, makeSlice } from "./testing/records.ts";

/** Counts every access by key and throws when iterated. */
class CountingMap<V> extends Map<string, V> {
  accesses = 0;
  override get(key: string): V | undefined {
    this.accesses++;
    return super.get(key);
  }
  override set(key: string, value: V): this {
    this.accesses++;
    return super.set(key, value);
  }
  override has(key: string): boolean {
    this.accesses++;
    return super.has(key);
  }
  override delete(key: string): boolean {
    this.accesses++;
    return super.delete(key);
  }
  override forEach(): never {
    throw new Error("walked over the whole cluster");
  }
  override keys(): never {
    throw new Error("walked over the whole cluster");
  }
  override values(): never {
    throw new Error("walked over the whole cluster");
  }
  override entries(): never {
    throw new Error("walked over the whole cluster");
  }
  override [Symbol.iterator](): never {
    throw new Error("walked over the whole cluster");
  }
}

/** A record that throws on any access after `seal`. */
function sealable<T extends object>(record: T): { readonly record: T; seal(): void } {
  let isSealed = false;
  const guarded = new Proxy(record, {
    get(target, field, receiver) {
      if (isSealed) throw new Error(`looked at ${String(field)} of an unchanged object`);
      return Reflect.get(target, field, receiver);
    },
  });
  return {
    record: guarded,
    seal: () => {
      isSealed = true;
    },
  };
}

function endpointChangeAccesses(services: number): number {
  const tracker = new EndpointsChangeTracker({ family: "IPv4", nodeName: "node-a", now: () => 0, log: silentLogger });
  const live = new CountingMap<readonly Endpoint[]>();
  for (let index = 0; index < services; index++) {
    const endpoints = [makeEndpointRecord("10.0.0.1", { nodeName: "node-a" })];
    const { record, seal } = sealable(makeSlice({ serviceName: `other${index}`, endpoints }));
    tracker.update(record, false);
    runAtOnce(tracker.apply(live));
    seal();
  }
  const slice = makeSlice({ endpoints: [makeEndpointRecord("10.0.0.1")] });
  tracker.update(slice, false);
  runAtOnce(tracker.apply(live));
  live.accesses = 0;
  tracker.update(makeSlice({ endpoints: [makeEndpointRecord("10.0.0.2")] }), false);
  assert.deepEqual([...runAtOnce(tracker.apply(live)).changedPorts], ["ns1/svc1:p/TCP"]);
  return live.accesses;
}

function serviceChangeAccesses(services: number): number {
  const tracker = new ServiceChangeTracker({ family: "IPv4", allowExternalIPs: true, log: silentLogger });
  const live = new CountingMap<ServicePort>();
  for (let index = 0; index < services; index++) {
    const { record, seal } = sealable(makeService({ name: `other${index}` }));
    tracker.update(undefined, record);
    runAtOnce(tracker.apply(live));
    seal();
  }
  tracker.update(undefined, makeService());
  runAtOnce(tracker.apply(live));
  live.accesses = 0;
  tracker.update(makeService(), makeService({ sessionAffinity: "ClientIP" }));
  assert.deepEqual([...runAtOnce(tracker.apply(live)).changedPorts], ["ns1/svc1:p/TCP"]);
  return live.accesses;
}

test("an endpoint change looks at its own service only", () => {
  assert.equal(endpointChangeAccesses(2_000), endpointChangeAccesses(10));
});

test("a service change looks at its own service only", () => {
  assert.equal(serviceChangeAccesses(2_000), serviceChangeAccesses(10));
});
