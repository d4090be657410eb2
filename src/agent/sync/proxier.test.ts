/** The proxier: which event causes which sync, when that is a full one, and how the proxier ends. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { SyncInput } from "../../contract/backend.ts";
import { ip } from "../../model/testing/records.ts";
import { ProxierBench } from "./testing/proxier-bench.ts";
import { addService } from "./testing/proxier-events.ts";
import { serviceRecord, sliceRecord } from "./testing/records.ts";

describe("proxier: which event causes which sync (endpoints.md §6.3)", () => {
  it("does nothing until both services and endpoint slices are complete, then syncs in full at once", async () => {
    const bench = new ProxierBench();
    void bench.proxier.run(bench.stop.signal);
    addService(bench, "a");
    bench.proxier.onSynced("services");
    await bench.clock.advance(5000);
    assert.deepEqual(bench.backend.calls, []);
    assert.equal(bench.metrics.calls.filter((call) => call.includes(" sync ")).length, 0);
    bench.proxier.onSynced("endpointSlices");
    await bench.clock.settle();
    assert.deepEqual(bench.backend.calls, [
      { startMs: 5000, isFullSync: true, changedPorts: ["ns/a:p/TCP"], zone: undefined, serviceCIDRs: [] },
    ]);
  });

  it("hands over both service ports when one loses a frontend, and tells of it once; renaming a port is no loss", async () => {
    const bench = new ProxierBench();
    await bench.start();
    addService(bench, "a", { clusterIP: "10.0.0.7", clusterIPs: ["10.0.0.7"], externalIPs: ["10.0.0.8"] });
    await bench.clock.advance(1000);
    const object = serviceRecord("b", { clusterIP: "10.0.0.8", clusterIPs: ["10.0.0.8"] });
    bench.proxier.onService({ kind: "add", object });
    await bench.clock.advance(1000);
    const changed = () => bench.backend.calls.at(-1)?.changedPorts.toSorted();
    assert.deepEqual(changed(), ["ns/a:p/TCP", "ns/b:p/TCP"]);
    const told = () => bench.conflicts.map(({ first: { loser, owner } }) => `${loser.text} to ${owner.text}`);
    assert.deepEqual(told(), ["ns/a:p to ns/b:p"]);
    const renamed = { ...object, ports: [{ name: "q", protocol: "TCP", port: 80, nodePort: 0 } as const] };
    bench.proxier.onService({ kind: "update", old: object, object: renamed });
    await bench.clock.advance(1000);
    assert.deepEqual(changed(), ["ns/b:p/TCP", "ns/b:q/TCP"]);
    assert.deepEqual(told(), ["ns/a:p to ns/b:p"]);
  });

  it("leaves endpoints out at once, only where that changes something, and says when that is done", async () => {
    const bench = new ProxierBench();
    addService(bench, "a");
    bench.proxier.onEndpointSlice({ kind: "add", object: sliceRecord("a", ["10.1.0.1", "10.1.0.2"]) });
    await bench.start();
    bench.backend.script = () => ({ durationMs: 300 });
    const [one] = bench.proxier.state.endpoints.get("ns/a:p/TCP") ?? [];
    const left = new Map([["ns/a:p/TCP", new Map([[one?.text ?? "", "no answer"]])]]);
    const done: number[] = [];
    void bench.proxier.leaveOut(left).then(() => done.push(bench.clock.monotonicMs()));
    await bench.clock.advance(299);
    assert.equal(done.length, 0);
    await bench.clock.advance(1);
    assert.deepEqual(done, [300]);
    const { isFullSync, changedPorts } = bench.backend.calls.at(-1) ?? {};
    assert.deepEqual([isFullSync, changedPorts], [false, ["ns/a:p/TCP"]]);
    bench.backend.script = () => ({ durationMs: 300, error: new Error("no kernel") });
    void bench.proxier.leaveOut(new Map()).then(() => done.push(bench.clock.monotonicMs()));
    await bench.clock.advance(300);
    assert.deepEqual(done, [300, 600]);
  });

  it("syncs a changed service alone, once for many events, when the shortest period allows", async () => {
    const bench = new ProxierBench();
    await bench.start();
    addService(bench, "a");
    await bench.clock.settle();
    addService(bench, "b");
    addService(bench, "c");
    await bench.clock.advance(1000);
    assert.deepEqual(
      bench.backend.calls.map(({ startMs, isFullSync, changedPorts }) => [startMs, isFullSync, changedPorts]),
      [
        [0, true, []],
        [0, false, ["ns/a:p/TCP"]],
        [1000, false, ["ns/b:p/TCP", "ns/c:p/TCP"]],
      ],
    );
  });

  it("leaves the mode its own pace, but for a shortest period that the user chose", async () => {
    for (const [isMinChosen, secondMs] of [
      [false, 300],
      [true, 50],
    ] as const) {
      const bench = new ProxierBench({ minMs: 50, isMinChosen });
      bench.backend.restMs = 300;
      await bench.start();
      addService(bench, "a");
      await bench.clock.advance(1000);
      addService(bench, "b");
      addService(bench, "c");
      await bench.clock.settle();
      addService(bench, "d");
      await bench.clock.advance(1000);
      assert.deepEqual(bench.startTimes, [0, 0, 1000, 1000 + secondMs]);
    }
  });

  it("ignores events that change nothing", async () => {
    const bench = new ProxierBench();
    await bench.start();
    addService(bench, "headless", { clusterIP: "None" });
    bench.proxier.onEndpointSlice({ kind: "add", object: sliceRecord("a", ["fd00::1"], { addressType: "IPv6" }) });
    bench.proxier.onEndpointSlice({ kind: "delete", object: sliceRecord("a", []) });
    await bench.clock.advance(5000);
    assert.equal(bench.backend.calls.length, 1);
  });

  it("syncs in full when the zone changes, and knows the new zone", async () => {
    const bench = new ProxierBench();
    await bench.start();
    bench.proxier.onZone("west");
    await bench.clock.settle();
    assert.deepEqual(
      bench.backend.calls.map(({ isFullSync, zone }) => [isFullSync, zone]),
      [
        [true, undefined],
        [true, "west"],
      ],
    );
  });

  it("does not lose a zone change that comes during a sync", async () => {
    const bench = new ProxierBench();
    bench.backend.script = () => ({ durationMs: 500 });
    await bench.start();
    await bench.clock.advance(100);
    bench.proxier.onZone("west");
    await bench.clock.advance(5000);
    assert.deepEqual(
      bench.backend.calls.map(({ isFullSync, zone }) => [isFullSync, zone]),
      [
        [true, undefined],
        [true, "west"],
      ],
    );
  });

  it("syncs in full and at once when the monitor finds the rules lost", async () => {
    const bench = new ProxierBench();
    await bench.start();
    addService(bench, "a");
    await bench.clock.advance(100);
    bench.backend.lose?.();
    await bench.clock.settle();
    assert.deepEqual(bench.startTimes, [0, 0, 100]);
    assert.equal(bench.backend.calls[2]?.isFullSync, true);
    assert.deepEqual([...bench.backend.programmed.keys()], ["ns/a:p/TCP"]);
    assert.equal(bench.metrics.calls.filter((call) => call === "repair").length, 1);
  });

  it("queues a partial sync, and counts no repair, when the mode asks for one", async () => {
    const bench = new ProxierBench();
    await bench.start();
    await bench.clock.advance(5000);
    bench.backend.requestSync?.();
    await bench.clock.settle();
    assert.equal(bench.backend.calls.length, 2);
    assert.equal(bench.backend.calls[1]?.isFullSync, false);
    assert.equal(bench.metrics.calls.filter((call) => call === "repair").length, 0);
  });

  it("starts a monitor again that failed", async () => {
    const bench = new ProxierBench();
    bench.backend.monitorError = new Error("no permission");
    await bench.start();
    assert.equal(bench.backend.lose, undefined);
    assert.match(bench.log.lines.join("\n"), /E Watching the rules failed.*no permission/);
    await bench.clock.advance(30_000);
    assert.notEqual(bench.backend.lose, undefined);
  });

  it("syncs in full once another mode's rules are gone, if flows end at this process", async () => {
    for (const endsFlows of [true, false]) {
      const bench = new ProxierBench();
      Object.assign(bench.backend, { endsFlows });
      await bench.start();
      bench.proxier.onLeftoversRemoved();
      await bench.clock.advance(5000);
      const later = bench.backend.calls.slice(1).map(({ isFullSync }) => isFullSync);
      assert.deepEqual(later, endsFlows ? [true] : []);
    }
  });

  it("syncs in full for the addresses of other Nodes only in a mode that uses them", async () => {
    const bench = new ProxierBench();
    await bench.start();
    const otherNodes = new Map([[ip("192.0.2.2"), "b"]]);
    const given: SyncInput["otherNodes"][] = [];
    bench.backend.script = (_, input) => {
      given.push(input.otherNodes);
      return {};
    };
    bench.proxier.onOtherNodes(otherNodes);
    await bench.clock.advance(5000);
    assert.equal(bench.backend.calls.length, 1);
    bench.backend.usesOtherNodes = true;
    bench.proxier.onOtherNodes(otherNodes);
    await bench.clock.advance(5000);
    assert.deepEqual(given, [otherNodes]);
    assert.equal(bench.backend.calls[1]?.isFullSync, true);
  });

  it("syncs in full for ServiceCIDRs only in a mode that uses them, and only when they change", async () => {
    const bench = new ProxierBench();
    await bench.start();
    bench.proxier.onServiceCIDRs(["10.0.0.0/16"]);
    await bench.clock.advance(5000);
    assert.equal(bench.backend.calls.length, 1);
    bench.backend.usesServiceCIDRs = true;
    bench.proxier.onServiceCIDRs(["10.0.0.0/16"]);
    await bench.clock.advance(5000);
    assert.equal(bench.backend.calls.length, 1);
    bench.proxier.onServiceCIDRs(["10.0.0.0/16", "10.1.0.0/16"]);
    await bench.clock.advance(5000);
    assert.deepEqual(bench.backend.calls[1]?.serviceCIDRs, ["10.0.0.0/16", "10.1.0.0/16"]);
    assert.equal(bench.backend.calls[1]?.isFullSync, true);
  });
});

describe("proxier: full or partial (iptables-operation.md §9.1)", () => {
  it("syncs in full every hour although nothing happens", async () => {
    const bench = new ProxierBench();
    await bench.start();
    await bench.clock.advance(2 * 3_600_000);
    assert.deepEqual(
      bench.backend.calls.map(({ startMs, isFullSync }) => [startMs, isFullSync]),
      [
        [0, true],
        [3_600_000, true],
        [7_200_000, true],
      ],
    );
  });

  it("leaves the hourly full sync out when the mode says so", async () => {
    const bench = new ProxierBench();
    bench.backend.skipsPeriodicFullSync = true;
    await bench.start();
    await bench.clock.advance(3_600_000);
    assert.deepEqual(
      bench.backend.calls.map(({ isFullSync }) => isFullSync),
      [true, false],
    );
  });

  it("counts the hour from the last full sync, not from the last sync", async () => {
    const bench = new ProxierBench();
    await bench.start();
    await bench.clock.advance(3_000_000);
    addService(bench, "a");
    await bench.clock.advance(700_000);
    addService(bench, "b");
    await bench.clock.advance(1000);
    assert.deepEqual(
      bench.backend.calls.map(({ startMs, isFullSync }) => [startMs, isFullSync]),
      [
        [0, true],
        [3_000_000, false],
        [3_700_000, true],
      ],
    );
  });
});

describe("proxier: the end", () => {
  it("waits for the sync under way, then starts no other and leaves no timer", async () => {
    const bench = new ProxierBench();
    bench.backend.script = (call) => ({ durationMs: call === 1 ? 0 : 10_000 });
    const { loop } = await bench.start();
    await bench.clock.settle();
    addService(bench, "a");
    await bench.clock.advance(1);
    assert.equal(bench.proxier.status.isSyncing, true);
    bench.stop.abort(new Error("terminated"));
    await loop;
    assert.equal(bench.proxier.status.isSyncing, false);
    addService(bench, "b");
    bench.proxier.onSynced("services");
    await bench.clock.advance(3_600_000);
    assert.equal(bench.backend.calls.length, 2);
    assert.equal(bench.clock.timerCount, 0);
    assert.doesNotMatch(bench.log.lines.join("\n"), /Sync failed/);
  });

  it("waits for a sync that no loop started, too", async () => {
    const bench = new ProxierBench();
    bench.serviceHealth.syncServices = () => bench.clock.sleep(5, new AbortController().signal);
    const { loop } = await bench.start();
    await bench.clock.advance(1);
    assert.equal(bench.proxier.status.isSyncing, true);
    bench.stop.abort();
    let hasEnded = false;
    const end = loop.then(() => {
      hasEnded = true;
    });
    await bench.clock.settle();
    assert.equal(hasEnded, false);
    await bench.clock.advance(5);
    assert.equal(hasEnded, true);
    await end;
  });

  it("refuses a shortest period above the full-sync period", () => {
    assert.throws(() => new ProxierBench({ minMs: 7_200_000 }), /minSyncPeriod is 2h0m0s: it must be at most 1h0m0s/);
  });
});
