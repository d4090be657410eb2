/** The proxier after a sync that failed, wholly or in part. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ProxierBench } from "./testing/proxier-bench.ts";
import { addService, UDP, UDP_SLICE, udpFlow } from "./testing/proxier-events.ts";
import { endpointRecord, serviceRecord, sliceRecord } from "./testing/records.ts";

const REFUSED = new Error("iptables-restore failed");

describe("proxier: after a failure (sync.md §12.3)", () => {
  it("retries after syncPeriod, in full, with the changes of the failed sync", async () => {
    const bench = new ProxierBench();
    bench.backend.script = (call) => (call === 2 ? { error: REFUSED } : {});
    await bench.start();
    addService(bench, "a");
    await bench.clock.advance(29_999);
    assert.equal(bench.backend.calls.length, 2);
    assert.equal(bench.proxier.status.isFailing, true);
    await bench.clock.advance(1);
    assert.deepEqual(bench.backend.calls[2], {
      startMs: 30_000,
      isFullSync: true,
      changedPorts: ["ns/a:p/TCP"],
      zone: undefined,
      serviceCIDRs: [],
    });
    assert.deepEqual([...bench.backend.programmed.keys()], ["ns/a:p/TCP"]);
    assert.equal(bench.proxier.status.isFailing, false);
  });

  it("retries a first sync that failed after syncPeriod, not after an hour, and logs why", async () => {
    const bench = new ProxierBench();
    bench.backend.script = (call) => (call === 1 ? { error: REFUSED } : {});
    await bench.start();
    await bench.clock.advance(30_000);
    assert.deepEqual(bench.startTimes, [0, 30_000]);
    assert.ok(
      bench.log.lines.includes(
        'E Sync failed {"err":"iptables-restore failed","retryingTime":"30s","ipFamily":"IPv4"}',
      ),
      bench.log.lines.join("\n"),
    );
    assert.equal(
      bench.log.lines.filter((line) => /^I Syncs succeed again .*"solves":"Sync failed"/.test(line)).length,
      1,
      bench.log.lines.join("\n"),
    );
  });

  it("hands the changes of several failed syncs on together", async () => {
    const bench = new ProxierBench();
    bench.backend.script = (call) => (call === 2 || call === 3 ? { error: REFUSED } : {});
    await bench.start();
    addService(bench, "a");
    await bench.clock.advance(2000);
    addService(bench, "b");
    await bench.clock.advance(2000);
    addService(bench, "c");
    await bench.clock.advance(2000);
    addService(bench, "d");
    await bench.clock.advance(2000);
    assert.deepEqual(
      bench.backend.calls.map(({ changedPorts }) => changedPorts.map((key) => key.slice(3, 4)).join("")),
      ["", "a", "ab", "abc", "d"],
    );
  });

  it("does not call health updated, and owes an update even for a sync that was not queued", async () => {
    const bench = new ProxierBench();
    bench.backend.script = (call) => (call === 1 ? { error: REFUSED } : {});
    await bench.start();
    assert.deepEqual(bench.health.calls, ["started IPv4", "queued IPv4"]);
    await bench.clock.advance(30_000);
    assert.deepEqual(bench.health.calls, ["started IPv4", "queued IPv4", "updated IPv4"]);
  });

  it("still owes the update when the sync failed before the loop started", async () => {
    const bench = new ProxierBench();
    bench.backend.script = () => ({ error: REFUSED });
    bench.proxier.onSynced("services");
    bench.proxier.onSynced("endpointSlices");
    await bench.clock.settle();
    void bench.proxier.run(bench.stop.signal);
    assert.equal(bench.health.isPending, true);
    await bench.clock.advance(30_000);
    assert.deepEqual(bench.startTimes, [0, 30_000]);
  });

  it("touches neither health ports, conntrack nor the last-sync time, but measures the sync", async () => {
    const bench = new ProxierBench();
    bench.backend.script = () => ({ error: REFUSED, durationMs: 250 });
    addService(bench, "a", UDP);
    bench.proxier.onEndpointSlice({ kind: "add", object: sliceRecord("a", ["10.1.0.1"], UDP_SLICE) });
    await bench.start();
    await bench.clock.advance(1000);
    assert.deepEqual(bench.serviceHealth.calls, []);
    assert.equal(bench.conntrack.dumps, 0);
    assert.deepEqual(
      bench.metrics.calls.filter((call) => /sync \d/.test(call)),
      ["full sync 0.25s"],
    );
  });

  it("looks for stale flows once a later sync succeeds", async () => {
    const bench = new ProxierBench();
    bench.backend.script = (call) => (call === 1 ? { error: REFUSED } : {});
    addService(bench, "a", UDP);
    bench.proxier.onEndpointSlice({ kind: "add", object: sliceRecord("a", ["10.1.0.1"], UDP_SLICE) });
    bench.conntrack.flows = [udpFlow("10.1.0.2")];
    await bench.start();
    assert.equal(bench.conntrack.flows.length, 1);
    await bench.clock.advance(30_000);
    assert.equal(bench.conntrack.flows.length, 0);
    addService(bench, "b");
    await bench.clock.advance(2000);
    assert.equal(bench.conntrack.dumps, 1);
  });
});

describe("proxier: parts that the kernel refuses", () => {
  const start = async (): Promise<ProxierBench> => {
    const bench = new ProxierBench();
    bench.backend.script = (call) => (call === 1 ? { refused: ["ns/bad:p/TCP"] } : {});
    const lastChangeTriggerTime = new Date(bench.clock.now() + 500).toISOString();
    await bench.clock.advance(2000);
    for (const name of ["bad", "good"]) {
      addService(bench, name, { type: "LoadBalancer", externalTrafficPolicy: "Local", healthCheckNodePort: 3000 });
      const endpoints = [endpointRecord("10.1.0.1", { nodeName: "node" })];
      bench.proxier.onEndpointSlice({
        kind: "add",
        object: sliceRecord(name, [], { endpoints, lastChangeTriggerTime }),
      });
    }
    await bench.start();
    return bench;
  };

  it("names them, is healthy, as other nodes refuse them too, and tries again in full after syncPeriod", async () => {
    const bench = await start();
    const failure = { subject: "ns/bad:p", reason: "refused" };
    assert.deepEqual(bench.proxier.failures, [failure]);
    assert.deepEqual(bench.proxier.status.failures, [failure]);
    assert.equal(bench.health.isPending, false);
    assert.match(bench.log.lines.join("\n"), /E Sync failed .*ns\/bad:p \(refused\)/);
    assert.deepEqual([...bench.backend.programmed.keys()], ["ns/good:p/TCP"]);
    await bench.clock.advance(30_000);
    assert.equal(bench.backend.calls[1]?.isFullSync, true);
    assert.deepEqual([...bench.backend.programmed.keys()].sort(), ["ns/bad:p/TCP", "ns/good:p/TCP"]);
    assert.deepEqual(bench.proxier.failures, []);
    assert.equal(bench.health.isPending, false);
  });

  it("knows what is in force in their place: as it was before the first change that was refused", async () => {
    const bench = await start();
    const standing = () =>
      bench.proxier.status.refused?.map(({ servicePort, reason, inForce }) => [
        ...[servicePort, reason, inForce?.port.clusterIP],
        inForce?.endpoints.map(({ text }) => text).join(" "),
      ]);
    const move = async (last: number, name = "bad") => {
      const record = (number: number) => {
        const address = `10.0.0.${number}`;
        return serviceRecord(name, { clusterIP: address, clusterIPs: [address] });
      };
      bench.proxier.onService({ kind: "update", old: record(last), object: record(last + 1) });
      const object = sliceRecord(name, [`10.1.0.${last}`]);
      bench.proxier.onEndpointSlice({ kind: "update", old: object, object });
      await bench.clock.advance(2_000);
    };
    assert.deepEqual(standing(), [["ns/bad:p/TCP", "refused", undefined, undefined]], "it never was in force");
    bench.backend.script = () => ({ refused: ["ns/bad:p/TCP"] });
    await move(20);
    assert.deepEqual(standing(), [["ns/bad:p/TCP", "refused", undefined, undefined]], "nor since");
    bench.backend.script = () => ({});
    await bench.clock.advance(30_000);
    assert.equal(standing(), undefined);
    bench.backend.script = () => ({ refused: ["ns/bad:p/TCP"] });
    await move(30);
    await move(40);
    const inForce = ["ns/bad:p/TCP", "refused", "10.0.0.21", "10.1.0.20:8080"];
    assert.deepEqual(standing(), [inForce]);
    await move(50, "good");
    assert.deepEqual(standing(), [inForce], "what others do is not its");
    bench.backend.script = () => ({});
    await bench.clock.advance(30_000);
    assert.equal(standing(), undefined);
  });

  for (const [name, refused, concernsAll] of [
    ["no service port is served", ["ns/bad:p/TCP", "ns/good:p/TCP"], undefined],
    ["a part that every service needs is refused", ["the chains"], true],
  ] as const) {
    it(`is not healthy while ${name}`, async () => {
      const bench = await start();
      bench.backend.script = () => ({ refused, ...(concernsAll && { concernsAll }) });
      await bench.clock.advance(60_000);
      assert.equal(bench.health.isPending, true);
      bench.backend.script = () => ({});
      await bench.clock.advance(60_000);
      assert.equal(bench.health.isPending, false);
    });
  }

  it("writes changes alone while a part stays refused, and tries all ever more rarely", async () => {
    const bench = await start();
    bench.backend.script = () => ({ refused: ["ns/bad:p/TCP"] });
    addService(bench, "other");
    await bench.clock.advance(2000);
    const [, change] = bench.backend.calls;
    assert.deepEqual([change?.isFullSync, change?.changedPorts], [false, ["ns/other:p/TCP"]]);
    await bench.clock.advance(400_000);
    const fullMs = bench.backend.calls.filter(({ isFullSync }) => isFullSync).map(({ startMs }) => startMs);
    const distances = fullMs.slice(1).map((startMs, index) => Math.round((startMs - (fullMs[index] ?? 0)) / 1000));
    assert.ok(distances.length >= 3, `${distances}`);
    for (const [index, distance] of distances.entries()) {
      const least = 30 * 2 ** index;
      assert.ok(distance >= least && distance < 2 * least, `${distances} s between full syncs`);
    }
  });

  it("leaves what was refused to the backend, and looks for stale flows again when it is in the kernel", async () => {
    const bench = new ProxierBench();
    await bench.start();
    bench.backend.script = (call) => (call === 2 ? { refused: ["ns/bad:p/UDP"] } : {});
    const ports = [{ name: "p", protocol: "UDP" as const, port: 53, nodePort: 0 }];
    addService(bench, "bad", { ports });
    bench.proxier.onEndpointSlice({
      kind: "add",
      object: sliceRecord("bad", ["10.1.0.1"], { ports: [{ name: "p", protocol: "UDP", port: 53 }] }),
    });
    await bench.clock.advance(2000);
    assert.deepEqual([...bench.backend.programmed.keys()], []);
    const dumps = bench.conntrack.dumps;
    addService(bench, "good");
    await bench.clock.advance(2000);
    const [, , third] = bench.backend.calls;
    assert.deepEqual([third?.isFullSync, third?.changedPorts], [false, ["ns/good:p/TCP"]]);
    assert.deepEqual([...bench.backend.programmed.keys()].sort(), ["ns/bad:p/UDP", "ns/good:p/TCP"]);
    assert.equal(bench.conntrack.dumps, dumps + 1);
  });

  it("names all rules when none could be programmed, until a sync succeeds", async () => {
    const bench = new ProxierBench();
    bench.backend.script = (call) => (call === 1 ? { error: new Error("the table is another program's") } : {});
    await bench.start();
    const failure = { subject: "fake rules", reason: "the table is another program's" };
    assert.deepEqual(bench.proxier.failures, [failure]);
    await bench.clock.advance(30_000);
    assert.deepEqual(bench.proxier.failures, []);
  });

  it("does what follows the rules for the parts that are programmed", async () => {
    const bench = await start();
    assert.deepEqual(bench.serviceHealth.calls, [
      'services [["ns/bad",3000],["ns/good",3000]]',
      'endpoints [["ns/bad",1],["ns/good",1]]',
    ]);
    assert.deepEqual(
      bench.metrics.calls.filter((call) => /^(programming|no local|last sync)/.test(call)),
      ["programming 1.5s", "no local endpoints 0 2", `last sync ${bench.clock.now() / 1000}`],
    );
  });
});
