/** The proxier after a successful sync: what it reports, and what it does to flows. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ProxierBench } from "./testing/proxier-bench.ts";
import { addService, UDP, UDP_SLICE, udpFlow } from "./testing/proxier-events.ts";
import { endpointRecord, serviceRecord, sliceRecord } from "./testing/records.ts";

describe("proxier: after a success", () => {
  it("takes a cause that seems to come later than its effect (a clock was set) for one just now", async () => {
    const bench = new ProxierBench();
    const lastChangeTriggerTime = new Date(bench.clock.now() + 60_000).toISOString();
    addService(bench, "web");
    bench.proxier.onEndpointSlice({
      kind: "add",
      object: sliceRecord("web", [], { endpoints: [endpointRecord("10.1.0.1")], lastChangeTriggerTime }),
    });
    await bench.start();
    assert.deepEqual(
      bench.metrics.calls.filter((call) => call.startsWith("programming")),
      ["programming 0s"],
    );
  });

  it("reports in upstream's order and in its units", async () => {
    const bench = new ProxierBench();
    bench.backend.script = () => ({ durationMs: 1500 });
    await bench.start();
    await bench.clock.advance(2000);
    const seconds = Date.UTC(2026, 0, 1) / 1000;
    assert.deepEqual(bench.metrics.calls, [
      `last queued ${seconds}`,
      "no local endpoints 0 0",
      `last sync ${seconds + 1.5}`,
      "full sync 1.5s",
    ]);
    assert.deepEqual(bench.serviceHealth.calls, ["services []", "endpoints []"]);
    assert.ok(bench.log.lines.includes('V2 Syncing fake rules {"fullSync":true,"ipFamily":"IPv4"}'));
    assert.ok(bench.log.lines.includes('V2 SyncProxyRules complete {"elapsed":"1.5s","ipFamily":"IPv4"}'));
  });

  it("shows pending changes until a sync takes them up", async () => {
    const bench = new ProxierBench();
    addService(bench, "a");
    bench.proxier.onEndpointSlice({ kind: "add", object: sliceRecord("a", ["10.1.0.1"]) });
    assert.deepEqual([bench.metrics.pendingServices, bench.metrics.pendingEndpointChanges], [1, 1]);
    await bench.start();
    assert.deepEqual([bench.metrics.pendingServices, bench.metrics.pendingEndpointChanges], [0, 0]);
    assert.deepEqual(bench.metrics.calls.slice(0, 2), ["service change", "endpoint change"]);
  });

  it("keeps a change that arrives during the sync for the next one, and health owes it from then on", async () => {
    const bench = new ProxierBench();
    bench.backend.script = () => ({ durationMs: 500 });
    await bench.start();
    await bench.clock.advance(100);
    addService(bench, "a");
    await bench.clock.advance(399);
    assert.equal(bench.health.isPending, true);
    await bench.clock.advance(1);
    assert.deepEqual(bench.health.calls.slice(-2), ["updated IPv4", "queued IPv4"]);
    await bench.clock.advance(2000);
    assert.deepEqual(bench.backend.calls[1]?.changedPorts, ["ns/a:p/TCP"]);
    assert.equal(bench.health.isPending, false);
    assert.deepEqual(bench.backend.violations, []);
  });

  it("is not failed by health ports or a conntrack table that cannot be had", async () => {
    const bench = new ProxierBench();
    bench.serviceHealth.error = new Error("port in use");
    bench.conntrack.dumpError = new Error("not permitted");
    addService(bench, "a", UDP);
    bench.proxier.onEndpointSlice({ kind: "add", object: sliceRecord("a", ["10.1.0.1"], UDP_SLICE) });
    await bench.start();
    assert.equal(bench.proxier.status.isFailing, false);
    assert.match(bench.log.lines.join("\n"), /port in use.*not permitted/s);
  });

  it("leaves conntrack to a mode whose flows do not end at endpoints", async () => {
    const bench = new ProxierBench();
    bench.backend.endsFlows = true;
    addService(bench, "a", UDP);
    bench.proxier.onEndpointSlice({ kind: "add", object: sliceRecord("a", ["10.1.0.1"], UDP_SLICE) });
    await bench.start();
    assert.equal(bench.conntrack.dumps, 0);
  });

  it("deletes the flows of UDP endpoints that are gone, and measures that", async () => {
    const bench = new ProxierBench();
    addService(bench, "a", UDP);
    const before = sliceRecord("a", ["10.1.0.1", "10.1.0.2"], UDP_SLICE);
    bench.proxier.onEndpointSlice({ kind: "add", object: before });
    await bench.start();
    const kept = udpFlow("10.1.0.1");
    bench.conntrack.flows = [kept, udpFlow("10.1.0.2")];
    const object = sliceRecord("a", ["10.1.0.1"], UDP_SLICE);
    bench.proxier.onEndpointSlice({ kind: "update", old: before, object });
    await bench.clock.advance(1000);
    assert.deepEqual(bench.conntrack.flows, [kept]);
    assert.equal(bench.metrics.calls.filter((call) => call === "conntrack 0s 1 deleted").length, 1);
  });

  it("deletes flows that were sent to a node port before a UDP Service with endpoints had it", async () => {
    const bench = new ProxierBench();
    const old = serviceRecord("a", UDP);
    addService(bench, "a", UDP);
    bench.proxier.onEndpointSlice({ kind: "add", object: sliceRecord("a", ["10.1.0.1"], UDP_SLICE) });
    await bench.start();
    const led = udpFlow("10.1.0.1");
    const toNode = {
      ...led,
      destinationIP: led.sourceIP,
      destinationPort: 30080,
      replySourceIP: led.sourceIP,
      replySourcePort: 30080,
    };
    bench.conntrack.flows = [led, toNode];
    const object = serviceRecord("a", { ports: [{ ...UDP.ports[0], nodePort: 30080 }] });
    bench.proxier.onService({ kind: "update", old, object });
    await bench.clock.advance(1000);
    assert.deepEqual(bench.conntrack.flows, [led]);
  });

  it("deletes the flows of a UDP Service that is deleted, also when its sync has failed first", async () => {
    const bench = new ProxierBench();
    addService(bench, "a", UDP);
    bench.proxier.onEndpointSlice({ kind: "add", object: sliceRecord("a", ["10.1.0.1"], UDP_SLICE) });
    await bench.start();
    bench.conntrack.flows = [udpFlow("10.1.0.1")];
    bench.backend.script = (call) => (call === 2 ? { error: new Error("busy") } : {});
    bench.proxier.onService({ kind: "delete", object: serviceRecord("a", UDP) });
    await bench.clock.advance(1000);
    assert.equal(bench.conntrack.flows.length, 1);
    await bench.clock.advance(30_000);
    assert.deepEqual(bench.conntrack.flows, []);
  });
});
