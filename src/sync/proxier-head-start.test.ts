/** What a mode may do before the lists are whole. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ProxierBench } from "./testing/proxier-bench.ts";
import { addService, UDP, UDP_SLICE } from "./testing/proxier-events.ts";
import { sliceRecord } from "./testing/records.ts";

/** A bench whose mode prepares: each call ends when the test says so. */
function preparingBench() {
  const calls: {
    readonly keys: readonly string[];
    readonly endpoints: number;
    readonly end: (error?: Error) => void;
  }[] = [];
  const bench = new ProxierBench(
    {},
    ({ changedPorts, endpointCount }) =>
      new Promise<void>((resolve, reject) => {
        const end = (error?: Error) => (error === undefined ? resolve() : reject(error));
        calls.push({ keys: [...changedPorts], endpoints: endpointCount, end });
      }),
  );
  return { bench, calls };
}

function addAll(bench: ProxierBench, from: number, to: number): void {
  for (let index = from; index < to; index++) {
    const clusterIP = `10.0.${index >> 8}.${index & 255}`;
    addService(bench, `s${index}`, { clusterIP, clusterIPs: [clusterIP] });
    bench.proxier.onEndpointSlice({ kind: "add", object: sliceRecord(`s${index}`, ["10.180.0.1"]) });
  }
}

describe("proxier: a head start", () => {
  it("hands over what has come, again and again, and begins the first sync when that has ended", async () => {
    const { bench, calls } = preparingBench();
    void bench.proxier.run(bench.stop.signal);
    addAll(bench, 0, 127);
    await bench.clock.settle();
    assert.equal(calls.length, 0);
    addAll(bench, 127, 200);
    await bench.clock.settle();
    assert.deepEqual(
      calls.map(({ keys, endpoints }) => [keys.length, endpoints]),
      [[200, 200]],
    );
    addAll(bench, 200, 400);
    await bench.clock.settle();
    assert.equal(calls.length, 1);
    calls[0]?.end();
    await bench.clock.settle();
    assert.deepEqual(
      calls.map(({ keys }) => keys.length),
      [200, 200],
    );
    bench.proxier.onServicesSynced();
    bench.proxier.onEndpointSlicesSynced();
    await bench.clock.settle();
    assert.equal(bench.startTimes.length, 0);
    calls[1]?.end();
    await bench.clock.settle();
    assert.deepEqual(
      bench.backend.calls.map(({ isFullSync, changedPorts }) => [isFullSync, changedPorts.length]),
      [[true, 400]],
    );
    assert.equal(bench.backend.programmed.size, 400);
    addAll(bench, 400, 700);
    await bench.clock.advance(1000);
    assert.equal(calls.length, 2);
    assert.deepEqual(bench.backend.violations, []);
  });

  it("forgets nothing of what it has applied: health ports and UDP flows are looked after by the first sync", async () => {
    const { bench, calls } = preparingBench();
    void bench.proxier.run(bench.stop.signal);
    addService(bench, "udp", { ...UDP, clusterIP: "10.1.0.1", clusterIPs: ["10.1.0.1"] });
    bench.proxier.onEndpointSlice({ kind: "add", object: sliceRecord("udp", ["10.180.0.1"], UDP_SLICE) });
    addAll(bench, 0, 256);
    await bench.clock.settle();
    calls[0]?.end();
    bench.proxier.onServicesSynced();
    bench.proxier.onEndpointSlicesSynced();
    await bench.clock.settle();
    assert.equal(bench.backend.calls[0]?.changedPorts.length, 257);
    assert.equal(bench.conntrack.dumps, 1);
  });

  it("a failure is logged, and costs nothing but the head start", async () => {
    const { bench, calls } = preparingBench();
    void bench.proxier.run(bench.stop.signal);
    addAll(bench, 0, 300);
    await bench.clock.settle();
    calls[0]?.end(new Error("no room"));
    await bench.clock.settle();
    addAll(bench, 300, 700);
    await bench.clock.settle();
    assert.equal(calls.length, 1);
    bench.proxier.onServicesSynced();
    bench.proxier.onEndpointSlicesSynced();
    await bench.clock.settle();
    assert.equal(bench.backend.programmed.size, 700);
  });
});
