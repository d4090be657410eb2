import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseIpAddress } from "../net/ip.ts";
import type { UdpFlow } from "../net/udp-flow.ts";
import { ProxierBench } from "./testing/proxier-bench.ts";
import { endpointRecord, serviceRecord, sliceRecord } from "./testing/records.ts";

const REFUSED = new Error("iptables-restore failed");

function addService(bench: ProxierBench, name: string, changes = {}): void {
  bench.proxier.onService({ kind: "add", object: serviceRecord(name, changes) });
}

function udpFlow(replier: string, sourcePort = 1): UdpFlow {
  const ip = (text: string) => parseIpAddress(text) ?? assert.fail(text);
  return {
    sourceIP: ip("10.9.9.9"),
    sourcePort,
    destinationIP: ip("10.0.0.1"),
    destinationPort: 80,
    replySourceIP: ip(replier),
    replySourcePort: 8080,
    replyDestinationIP: ip("10.9.9.9"),
    replyDestinationPort: sourcePort,
  };
}

const UDP = { ports: [{ name: "p", protocol: "UDP", port: 80, nodePort: 0 }] } as const;
const UDP_SLICE = { ports: [{ name: "p", protocol: "UDP", port: 8080 }] } as const;

describe("proxier: which event causes which sync (endpoints.md §6.3)", () => {
  it("does nothing until both services and endpoint slices are complete, then syncs in full at once", async () => {
    const bench = new ProxierBench();
    void bench.proxier.run(bench.stop.signal);
    addService(bench, "a");
    bench.proxier.onServicesSynced();
    await bench.clock.advance(5000);
    assert.deepEqual(bench.backend.calls, []);
    assert.equal(bench.metrics.calls.filter((call) => call.includes(" sync ")).length, 0);
    bench.proxier.onEndpointSlicesSynced();
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
    const told = () => bench.conflicts.map(({ loser, owner }) => `${loser.text} to ${owner.text}`);
    assert.deepEqual(told(), ["ns/a:p to ns/b:p"]);
    const renamed = { ...object, ports: [{ name: "q", protocol: "TCP", port: 80, nodePort: 0 } as const] };
    bench.proxier.onService({ kind: "update", old: object, object: renamed });
    await bench.clock.advance(1000);
    assert.deepEqual(changed(), ["ns/b:p/TCP", "ns/b:q/TCP"]);
    assert.deepEqual(told(), ["ns/a:p to ns/b:p"]);
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
    assert.match(bench.log.lines.join("\n"), /E Watching over the rules failed.*no permission/);
    await bench.clock.advance(30_000);
    assert.notEqual(bench.backend.lose, undefined);
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

  it("does not call health updated, and owes an update even for a sync that nobody queued", async () => {
    const bench = new ProxierBench();
    bench.backend.script = (call) => (call === 1 ? { error: REFUSED } : {});
    await bench.start();
    assert.deepEqual(bench.health.calls, ["updated IPv4", "queued IPv4"]);
    await bench.clock.advance(30_000);
    assert.deepEqual(bench.health.calls, ["updated IPv4", "queued IPv4", "updated IPv4"]);
  });

  it("still owes the update when the sync failed before the loop started", async () => {
    const bench = new ProxierBench();
    bench.backend.script = () => ({ error: REFUSED });
    bench.proxier.onServicesSynced();
    bench.proxier.onEndpointSlicesSynced();
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

  it("names them, is not healthy and tries again in full after syncPeriod", async () => {
    const bench = await start();
    const failure = { subject: "ns/bad:p", reason: "refused" };
    assert.deepEqual(bench.failures, [[failure]]);
    assert.deepEqual(bench.proxier.status.failures, [failure]);
    assert.equal(bench.health.isPending, true);
    assert.match(bench.log.lines.join("\n"), /E Sync failed .*ns\/bad:p \(refused\)/);
    assert.deepEqual([...bench.backend.programmed.keys()], ["ns/good:p/TCP"]);
    await bench.clock.advance(30_000);
    assert.equal(bench.backend.calls[1]?.isFullSync, true);
    assert.deepEqual([...bench.backend.programmed.keys()].sort(), ["ns/bad:p/TCP", "ns/good:p/TCP"]);
    assert.deepEqual(bench.failures, [[failure], []]);
    assert.equal(bench.health.isPending, false);
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
    bench.backend.script = (call) => (call === 1 ? { error: new Error("the table is somebody else's") } : {});
    await bench.start();
    const failure = { subject: "fake rules", reason: "the table is somebody else's" };
    assert.deepEqual(bench.failures, [[failure]]);
    await bench.clock.advance(30_000);
    assert.deepEqual(bench.failures, [[failure], []]);
  });

  it("does what follows the rules for the parts that are programmed", async () => {
    const bench = await start();
    assert.deepEqual(bench.serviceHealth.calls, [
      'services [["ns/bad",3000],["ns/good",3000]]',
      'endpoints [["ns/bad",1],["ns/good",1]]',
    ]);
    assert.deepEqual(
      bench.metrics.calls.filter((call) => /^(programming|no local|last sync)/.test(call)),
      ["programming 1.5s", "no local endpoints 1 2"],
    );
  });
});

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
      "no local endpoints 1 2",
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
    assert.match(bench.log.lines.join("\n"), /port in use.*\n.*not permitted/);
  });

  it("leaves conntrack to a mode whose flows do not end at endpoints", async () => {
    const bench = new ProxierBench();
    bench.backend.endsUdpFlows = true;
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
    bench.proxier.onServicesSynced();
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
    assert.throws(() => new ProxierBench({ minMs: 3_600_001 }), RangeError);
  });
});
