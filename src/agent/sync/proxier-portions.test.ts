/** A Service with many ports: programmed in portions, with other changes in between. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ProxierOptions } from "./proxier-options.ts";
import { ProxierBench } from "./testing/proxier-bench.ts";
import { addService, UDP, UDP_SLICE, udpFlow } from "./testing/proxier-events.ts";
import { endpointRecord, sliceRecord } from "./testing/records.ts";

const PORTS = Array.from({ length: 10 }, (_, n) => ({ name: `p${n}`, protocol: "TCP", port: n + 75, nodePort: 0 }));

/** Each portion takes this long. */
async function started(durationMs: number, more?: Pick<ProxierOptions, "ending">): Promise<ProxierBench> {
  const bench = new ProxierBench({ minMs: 0 }, more);
  await bench.start();
  bench.backend.portsAtOnce = 3;
  bench.backend.script = () => ({ durationMs });
  return bench;
}

function syncs(bench: ProxierBench): string[] {
  return bench.backend.calls.slice(1).map(({ changedPorts }) => changedPorts.map((key) => key.split("/")[1]).join(" "));
}

describe("proxier: portions", () => {
  it("programs another Service's change before the rest of one with many ports", async () => {
    const bench = await started(100);
    addService(bench, "many", { ports: PORTS });
    await bench.clock.advance(50);
    addService(bench, "after", { clusterIP: "10.0.0.2", clusterIPs: ["10.0.0.2"] });
    await bench.clock.advance(100);
    assert.equal(bench.health.isPending, true, "not all is in the kernel");
    await bench.clock.advance(2_000);
    assert.deepEqual(syncs(bench), [
      "many:p0 many:p1 many:p2",
      "after:p many:p3 many:p4",
      "many:p5 many:p6 many:p7",
      "many:p8 many:p9",
    ]);
    assert.equal(bench.backend.programmed.size, 11);
    assert.equal(bench.health.isPending, false);
    assert.deepEqual(bench.backend.violations, []);
  });

  it("answers at a Service's health-check port once all of its portions are in the kernel", async () => {
    const bench = await started(100);
    const looks: string[] = [];
    bench.serviceHealth.syncServices = async (_ports, changed) => {
      looks.push(`${bench.backend.programmed.size}: ${[...(changed ?? [])].sort().join(" ")}`);
    };
    const local = { type: "LoadBalancer", externalTrafficPolicy: "Local" };
    addService(bench, "many", { ports: PORTS, ...local, healthCheckNodePort: 30_998 });
    addService(bench, "other", {
      clusterIP: "10.0.0.2",
      clusterIPs: ["10.0.0.2"],
      ...local,
      healthCheckNodePort: 30_999,
    });
    await bench.clock.advance(2_000);
    assert.deepEqual(looks, ["3: ns/other", "6: ", "9: ", "11: ns/many"]);
  });

  it("names a Service that took longer than a second in all, once", async () => {
    const bench = await started(300);
    addService(bench, "many", { ports: PORTS });
    addService(bench, "other", { clusterIP: "10.0.0.2", clusterIPs: ["10.0.0.2"] });
    await bench.clock.advance(10_000);
    assert.equal(bench.metrics.calls.filter((call) => call === "costly service").length, 1);
    assert.deepEqual(
      bench.costly.map(({ service, servicePorts }) => [service, servicePorts]),
      [["ns/many", 10]],
    );
    assert.ok(bench.log.lines.some((line) => line.includes('A Service took long to program {"service":"ns/many"')));
    bench.backend.portsAtOnce = Number.POSITIVE_INFINITY;
    bench.backend.script = () => ({ durationMs: 1_001 });
    addService(bench, "slow", { clusterIP: "10.0.0.3", clusterIPs: ["10.0.0.3"] });
    await bench.clock.advance(10_000);
    assert.equal(bench.costly.at(-1)?.service, "ns/slow", "in one sync, too");
  });

  it("does not name a Service that changed when everything was looked at, and that counts as a full sync", async () => {
    const bench = await started(300);
    bench.backend.script = () => ({ durationMs: 5_000, wasFull: true });
    addService(bench, "innocent");
    await bench.clock.advance(20_000);
    assert.deepEqual([syncs(bench), bench.costly], [["innocent:p"], []]);
    assert.ok(bench.metrics.calls.includes("full sync 5s"));
  });

  it("observes a change, and looks for stale flows, when all portions are in the kernel", async () => {
    const bench = await started(100);
    const ports = PORTS.map((port) => ({ ...port, protocol: "UDP" }));
    await bench.clock.advance(1_000);
    const lastChangeTriggerTime = new Date(bench.clock.now()).toISOString();
    addService(bench, "many", { ...UDP, ports });
    const slicePorts = ports.map(({ name }) => ({ ...UDP_SLICE.ports[0], name }));
    bench.proxier.onEndpointSlice({
      kind: "add",
      object: sliceRecord("many", [], {
        ports: slicePorts,
        endpoints: [endpointRecord("10.1.0.1")],
        lastChangeTriggerTime,
      }),
    });
    bench.conntrack.flows = [udpFlow("10.1.0.9")];
    const observed = () => bench.metrics.calls.filter((call) => call.startsWith("programming"));
    await bench.clock.advance(350);
    assert.deepEqual([observed(), bench.conntrack.flows.length], [[], 1]);
    await bench.clock.advance(1_000);
    assert.deepEqual(observed(), ["programming 0.4s"]);
    assert.equal(bench.conntrack.flows.length, 0);
  });

  it("ends connections to an endpoint that is gone when the rules of their port lead there no longer", async () => {
    for (const isRefused of [false, true]) {
      const ending = { endTCP: "Gone", afterMs: 1_000, endSockets: async () => new Set<never>() } as const;
      const bench = await started(3_000, { ending });
      const slice = (...ips: string[]) =>
        sliceRecord("many", [], {
          ports: PORTS.map(({ name }) => ({ name, protocol: "TCP", port: 8080 })),
          endpoints: ips.map((ip) => endpointRecord(ip)),
        });
      const [both, one] = [slice("10.1.0.1", "10.1.0.2"), slice("10.1.0.2")];
      addService(bench, "many", { ports: PORTS });
      bench.proxier.onEndpointSlice({ kind: "add", object: both });
      await bench.clock.advance(60_000);
      // To the last port, which is in the last of four portions.
      bench.conntrack.flows = [{ ...udpFlow("10.1.0.1"), protocol: "TCP", destinationPort: 84 }];
      const refused = isRefused ? ["ns/many:p9/TCP"] : [];
      bench.backend.script = () => ({ durationMs: 3_000, refused });
      bench.proxier.onEndpointSlice({ kind: "update", old: both, object: one });
      await bench.clock.advance(11_000);
      assert.equal(bench.conntrack.flows.length, 1, "a client that is cut off asks again, and is led there again");
      await bench.clock.advance(4_000);
      assert.equal(bench.conntrack.flows.length, isRefused ? 1 : 0);
      refused.length = 0;
      await bench.clock.advance(60_000);
      assert.equal(bench.conntrack.flows.length, 0, "once it is taken");
    }
  });
});
