/** Service ports whose Local policy has endpoints, but none on this node: `sync_proxy_rules_no_local_endpoints_total`. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ServiceRecord } from "../../model/objects.ts";
import { ProxierBench } from "./testing/proxier-bench.ts";
import { endpointRecord, serviceRecord, sliceRecord } from "./testing/records.ts";

const INTERNAL: Partial<ServiceRecord> = { internalTrafficPolicy: "Local" };
const EXTERNAL: Partial<ServiceRecord> = {
  type: "NodePort",
  externalTrafficPolicy: "Local",
  ports: [{ name: "p", protocol: "TCP", port: 80, nodePort: 30080 }],
};
const TWO_PORTS: Partial<ServiceRecord> = {
  ...INTERNAL,
  ports: [
    { name: "p", protocol: "TCP", port: 80, nodePort: 0 },
    { name: "q", protocol: "TCP", port: 81, nodePort: 0 },
  ],
};

function add(bench: ProxierBench, name: string, changes: Partial<ServiceRecord>, addresses = ["10.1.0.1"]): void {
  const clusterIP = `10.0.0.${name.charCodeAt(0)}`;
  bench.proxier.onService({
    kind: "add",
    object: serviceRecord(name, { clusterIP, clusterIPs: [clusterIP], ...changes }),
  });
  const ports = (["p", "q"] as const).map((port) => ({ name: port, protocol: "TCP" as const, port: 8080 }));
  bench.proxier.onEndpointSlice({ kind: "add", object: sliceRecord(name, addresses, { ports }) });
}

function counts(bench: ProxierBench): string[] {
  return bench.metrics.calls.filter((call) => call.startsWith("no local"));
}

test("service ports are counted by policy, while there are endpoints on other nodes alone", async () => {
  const bench = new ProxierBench();
  add(bench, "a", TWO_PORTS);
  add(bench, "b", EXTERNAL);
  add(bench, "c", {});
  add(bench, "d", INTERNAL, []);
  await bench.start();
  assert.deepEqual(counts(bench), ["no local endpoints 2 1"]);
  const old = sliceRecord("b", ["10.1.0.1"]);
  const here = sliceRecord("b", [], { endpoints: [endpointRecord("10.1.0.9", { nodeName: "node" })] });
  bench.proxier.onEndpointSlice({ kind: "update", old, object: here });
  await bench.clock.advance(2000);
  bench.proxier.onService({ kind: "delete", object: serviceRecord("a", TWO_PORTS) });
  await bench.clock.advance(2000);
  assert.deepEqual(counts(bench).slice(1), ["no local endpoints 2 0", "no local endpoints 0 0"]);
});

test("what a sync that failed was to program counts after the next one", async () => {
  const bench = new ProxierBench();
  bench.backend.script = (call) => (call === 2 ? { error: new Error("the lock is held") } : {});
  await bench.start();
  add(bench, "a", INTERNAL);
  await bench.clock.advance(40_000);
  assert.deepEqual(counts(bench), ["no local endpoints 0 0", "no local endpoints 1 0"]);
});

test("a mode may count Services", async () => {
  const bench = new ProxierBench();
  Object.assign(bench.backend, { countsServices: true });
  add(bench, "a", TWO_PORTS);
  await bench.start();
  assert.deepEqual(counts(bench), ["no local endpoints 1 0"]);
});
