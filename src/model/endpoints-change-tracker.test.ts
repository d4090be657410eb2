import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { runAtOnce } from "../async/turns.ts";
import { silentLogger } from "../logging/logger.ts";
import type { Endpoint } from "./endpoint.ts";
import { type EndpointsChanges, EndpointsChangeTracker } from "./endpoints-change-tracker.ts";
import type { EndpointSliceRecord } from "./objects.ts";
import { makeEndpointRecord, makeSlice, TCP_80, UDP_53 } from "./testing/records.ts";

const START = Date.UTC(2024, 0, 1);
const at = (seconds: number) => new Date(START + seconds * 1000).toISOString();

interface TestClock {
  readonly now: () => number;
  readonly monotonicMs?: () => number;
}

function makeTracker(nodeName = "node-a", clock: TestClock = { now: () => START }) {
  const problems: string[] = [];
  const tracker = new EndpointsChangeTracker({
    family: "IPv4",
    nodeName,
    ...clock,
    log: {
      ...silentLogger,
      error: (_message, _error, facts = {}) => void problems.push(`${facts.endpointSlice} ${facts.field}`),
    },
  });
  return { tracker, problems, live: new Map<string, readonly Endpoint[]>() };
}

/** A tracker that has applied the given slices. */
function withApplied(...slices: EndpointSliceRecord[]) {
  const made = makeTracker();
  for (const slice of slices) made.tracker.update(slice, false);
  runAtOnce(made.tracker.apply(made.live));
  return made;
}

function plain(changes: EndpointsChanges) {
  return {
    services: [...changes.updatedServices],
    ports: [...changes.changedPorts].sort(),
    conntrack: changes.conntrackCleanupRequired,
    times: Object.fromEntries(changes.lastChangeTriggerTimes),
  };
}

const NOTHING = { services: [], ports: [], conntrack: false, times: {} };
const CHANGED = { accepted: true, changed: true };
const UNCHANGED = { accepted: true, changed: false };
const REFUSED = { accepted: false, changed: false };

const a = makeSlice({ endpoints: [makeEndpointRecord("10.0.0.1")] });
const b = makeSlice({ name: "svc1-b", endpoints: [makeEndpointRecord("10.0.0.2")] });

describe("which slices are accepted", () => {
  const rows: readonly [string, Partial<EndpointSliceRecord>, string[]][] = [
    ["another family", { addressType: "IPv6" }, []],
    ["FQDN", { addressType: "FQDN" }, []],
    ["no service label", { serviceName: "" }, []],
  ];
  for (const [name, overrides, expected] of rows) {
    test(`refused: ${name}`, () => {
      const { tracker, problems, live } = makeTracker();
      assert.deepEqual(tracker.update(makeSlice({ ...a, ...overrides }), false), REFUSED);
      assert.deepEqual(problems, expected);
      assert.deepEqual(plain(runAtOnce(tracker.apply(live))), NOTHING);
      assert.equal(tracker.serviceCount, 0);
    });
  }
});

describe("what counts as a change", () => {
  test("a new slice, once", () => {
    const { tracker, live } = makeTracker();
    assert.deepEqual(tracker.update(a, false), CHANGED);
    assert.deepEqual(tracker.update(a, false), UNCHANGED);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))), {
      ...NOTHING,
      services: ["ns1/svc1"],
      ports: ["ns1/svc1:p/TCP"],
    });
    assert.deepEqual([...live.keys()], ["ns1/svc1:p/TCP"]);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))), NOTHING);
  });

  test("a resync of an applied slice is none, by reference or by value", () => {
    const { tracker } = withApplied(a);
    assert.deepEqual(tracker.update(a, false), UNCHANGED);
    assert.deepEqual(tracker.update(structuredClone(a), false), UNCHANGED);
  });

  const edits: readonly [string, Partial<EndpointSliceRecord>][] = [
    ["metadata only", { resourceVersion: "2" }],
    ["the trigger time", { lastChangeTriggerTime: at(1) }],
    ["the order of endpoints", { endpoints: [makeEndpointRecord("10.0.0.2"), makeEndpointRecord("10.0.0.1")] }],
    ["the order of ports", { ports: [UDP_53, TCP_80] }],
    ["the number of endpoints", { endpoints: [makeEndpointRecord("10.0.0.1")] }],
  ];
  const base = makeSlice({
    ports: [TCP_80, UDP_53],
    endpoints: [makeEndpointRecord("10.0.0.1"), makeEndpointRecord("10.0.0.2")],
  });
  for (const [name, edit] of edits) {
    test(`an edit of ${name} is one`, () => {
      const { tracker } = withApplied(base);
      assert.deepEqual(tracker.update({ ...base, ...edit }, false), CHANGED);
    });
  }

  test("every field of an endpoint and of a port counts", () => {
    const endpoint = makeEndpointRecord("10.0.0.1", { nodeName: "n", zoneHints: ["z"], nodeHints: ["n"] });
    const slice = makeSlice({ endpoints: [endpoint] });
    const other = {
      address: "10.0.0.9",
      nodeName: "m",
      ready: false,
      serving: false,
      terminating: true,
      zoneHints: ["y"],
      nodeHints: undefined,
    };
    for (const field of Object.entries(other)) {
      const { tracker } = withApplied(slice);
      const edited = { ...slice, endpoints: [{ ...endpoint, ...Object.fromEntries([field]) }] };
      assert.deepEqual(tracker.update(edited, false), CHANGED, field[0]);
    }
    for (const field of Object.entries({ name: "", protocol: "UDP", port: null })) {
      const { tracker } = withApplied(slice);
      const edited = { ...slice, ports: [{ ...TCP_80, ...Object.fromEntries([field]) }] };
      assert.deepEqual(tracker.update(edited, false), CHANGED, field[0]);
    }
  });

  test("a change and its exact revert are two, and the service counts as updated though its endpoints do not", () => {
    const { tracker, live } = withApplied(a);
    const edited = makeSlice({ endpoints: [makeEndpointRecord("10.0.0.9")] });
    assert.deepEqual(tracker.update(edited, false), CHANGED);
    assert.deepEqual(tracker.update(a, false), CHANGED);
    assert.deepEqual(tracker.update(a, false), UNCHANGED);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))), { ...NOTHING, services: ["ns1/svc1"] });
  });

  test("removing a slice that was never seen is none", () => {
    const { tracker } = withApplied(a);
    assert.deepEqual(tracker.update(b, true), UNCHANGED);
    assert.deepEqual(tracker.update({ ...a, serviceName: "other" }, true), UNCHANGED);
    assert.equal(tracker.serviceCount, 1);
  });

  test("a removal counts once", () => {
    const { tracker } = withApplied(a);
    assert.deepEqual(tracker.update(a, true), CHANGED);
    assert.deepEqual(tracker.update(a, true), UNCHANGED);
  });

  test("adding and removing before a sync leaves the service updated and nothing behind", () => {
    const { tracker, live } = makeTracker();
    assert.deepEqual(tracker.update(a, false), CHANGED);
    assert.deepEqual(tracker.update(a, true), CHANGED);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))), { ...NOTHING, services: ["ns1/svc1"] });
    assert.equal(live.size, 0);
    assert.equal(tracker.serviceCount, 0);
  });
});

describe("applying", () => {
  test("removing one of two slices keeps the other's endpoints; removing both forgets the service", () => {
    const { tracker, live } = withApplied(a, b);
    assert.deepEqual(
      live.get("ns1/svc1:p/TCP")?.map((e) => e.text),
      ["10.0.0.1:80", "10.0.0.2:80"],
    );
    tracker.update(a, true);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))).ports, ["ns1/svc1:p/TCP"]);
    assert.deepEqual(
      live.get("ns1/svc1:p/TCP")?.map((e) => e.text),
      ["10.0.0.2:80"],
    );
    assert.equal(tracker.serviceCount, 1);
    tracker.update(b, true);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))).ports, ["ns1/svc1:p/TCP"]);
    assert.equal(live.size, 0);
    assert.equal(tracker.serviceCount, 0);
  });

  test("a renamed port goes, its new name comes", () => {
    const { tracker, live } = withApplied(a);
    tracker.update({ ...a, ports: [{ ...TCP_80, name: "q" }] }, false);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))).ports, ["ns1/svc1:p/TCP", "ns1/svc1:q/TCP"]);
    assert.deepEqual([...live.keys()], ["ns1/svc1:q/TCP"]);
  });

  test("only the ports whose endpoints differ are changed", () => {
    const two = makeSlice({ ports: [TCP_80, UDP_53], endpoints: [makeEndpointRecord("10.0.0.1")] });
    const { tracker, live } = withApplied(two);
    tracker.update({ ...two, ports: [TCP_80, { ...UDP_53, port: 5353 }] }, false);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))).ports, ["ns1/svc1:dns/UDP"]);
  });

  test("the result does not depend on the order in which overlapping slices arrived", () => {
    const notReady = makeSlice({ name: "svc1-b", endpoints: [makeEndpointRecord("10.0.0.1", { ready: false })] });
    const forwards = withApplied(a, notReady).live;
    const backwards = withApplied(notReady, a).live;
    assert.deepEqual(forwards, backwards);
  });

  test("received objects are left as they were", () => {
    const slice = makeSlice({ endpoints: [makeEndpointRecord("10.0.0.2"), makeEndpointRecord("10.0.0.1")] });
    const before = structuredClone(slice);
    withApplied(slice);
    assert.deepEqual(slice, before);
  });
});

describe("conntrack clean-up", () => {
  const udp = makeSlice({ ports: [UDP_53], endpoints: [makeEndpointRecord("10.0.0.1")] });
  const terminating = makeEndpointRecord("10.0.0.1", { ready: false, terminating: true });
  const rows: readonly [string, EndpointSliceRecord[], EndpointSliceRecord, boolean, boolean][] = [
    ["a new UDP endpoint", [], udp, false, true],
    ["a UDP endpoint that terminates", [udp], { ...udp, endpoints: [terminating] }, false, true],
    ["a pure removal", [udp], udp, true, true],
    ["the last UDP endpoint leaving the slice", [udp], { ...udp, endpoints: [] }, false, true],
    ["a UDP port without endpoints before and after", [], { ...udp, endpoints: [] }, false, false],
    ["TCP only", [a], b, false, false],
    ["TCP only", [], { ...udp, ports: [{ ...UDP_53, protocol: "TCP" }] }, false, false],
    ["SCTP only", [], { ...udp, ports: [{ ...UDP_53, protocol: "SCTP" }] }, false, true],
  ];
  for (const [name, applied, slice, isRemoval, expected] of rows) {
    test(`${expected ? "" : "not "}required for ${name}`, () => {
      const { tracker, live } = withApplied(...applied);
      tracker.update(slice, isRemoval);
      assert.equal(runAtOnce(tracker.apply(live)).conntrackCleanupRequired, expected);
    });
  }

  test("one UDP service among the pending ones is enough, and a UDP service that is not pending does not count", () => {
    const { tracker, live } = withApplied(udp);
    tracker.update({ ...a, serviceName: "svc2" }, false);
    assert.equal(runAtOnce(tracker.apply(live)).conntrackCleanupRequired, false);
    tracker.update({ ...udp, resourceVersion: "2" }, false);
    tracker.update({ ...b, serviceName: "svc2" }, false);
    assert.equal(runAtOnce(tracker.apply(live)).conntrackCleanupRequired, true);
  });
});

describe("trigger times", () => {
  const timed = (seconds: number, version = String(seconds)) =>
    makeSlice({ lastChangeTriggerTime: at(seconds), resourceVersion: version });

  test("are collected per service and drained by applying", () => {
    const { tracker, live } = makeTracker();
    tracker.update(timed(1), false);
    tracker.update(timed(2), false);
    tracker.update({ ...timed(3), serviceName: "svc2" }, false);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))).times, {
      "ns1/svc1": [START + 1000, START + 2000],
      "ns1/svc2": [START + 3000],
    });
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))).times, {});
  });

  test("from before or exactly at the start of the tracker are ignored, like missing and invalid ones", () => {
    const { tracker, live } = makeTracker();
    tracker.update(timed(-1), false);
    tracker.update(timed(0), false);
    tracker.update(makeSlice({ resourceVersion: "x" }), false);
    tracker.update(makeSlice({ resourceVersion: "y", lastChangeTriggerTime: "soon" }), false);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))).times, {});
  });

  for (const [what, setBySeconds] of [
    ["back", -86_400],
    ["forward, as on a node that begins in 1970", 86_400],
  ] as const) {
    test(`count from the start of the tracker on, also when the clock is set ${what}`, () => {
      let [nowMs, monotonicMs] = [START, 5_000];
      const { tracker, live } = makeTracker("", { now: () => nowMs, monotonicMs: () => monotonicMs });
      nowMs += setBySeconds * 1_000 + 60_000;
      monotonicMs += 60_000;
      tracker.update(timed(setBySeconds - 1), false);
      tracker.update(timed(setBySeconds + 30), false);
      assert.deepEqual(plain(runAtOnce(tracker.apply(live))).times, {
        "ns1/svc1": [START + (setBySeconds + 30) * 1_000],
      });
    });
  }

  test("an event that changes nothing adds none", () => {
    const { tracker, live } = makeTracker();
    tracker.update(timed(1), false);
    tracker.update(timed(1), false);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))).times, { "ns1/svc1": [START + 1000] });
  });

  test("add, delete: none; add, delete, add: only the last", () => {
    const { tracker, live } = makeTracker();
    tracker.update(timed(1), false);
    tracker.update(timed(1), true);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))).times, {});
    tracker.update(timed(2), false);
    tracker.update(timed(2), true);
    tracker.update(timed(3), false);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))).times, { "ns1/svc1": [START + 3000] });
  });

  test("a removal forgets what the service's other slices said, too", () => {
    const { tracker, live } = withApplied(b);
    tracker.update(timed(1), false);
    tracker.update(b, true);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))).times, {});
  });
});

describe("local ready endpoints", () => {
  const local = { nodeName: "node-a" };
  const count = (slices: EndpointSliceRecord[], nodeName?: string) => {
    const { tracker, live } = makeTracker(nodeName);
    for (const slice of slices) tracker.update(slice, false);
    runAtOnce(tracker.apply(live));
    return Object.fromEntries(tracker.localReadyCounts);
  };

  test("are counted by IP over all ports and slices", () => {
    const one = makeSlice({ ports: [TCP_80, UDP_53], endpoints: [makeEndpointRecord("10.0.0.1", local)] });
    const two = { ...one, name: "svc1-b", endpoints: [...one.endpoints, makeEndpointRecord("10.0.0.2", local)] };
    assert.deepEqual(count([one]), { "ns1/svc1": 1 });
    assert.deepEqual(count([one, two]), { "ns1/svc1": 2 });
    const three = { ...two, endpoints: ["1", "2", "3"].map((n) => makeEndpointRecord(`10.0.0.${n}`, local)) };
    assert.deepEqual(count([one, three]), { "ns1/svc1": 3 });
  });

  test("neither remote nor unready nor terminating ones count, and zero is absent", () => {
    const endpoints = [
      makeEndpointRecord("10.0.0.1", { nodeName: "node-b" }),
      makeEndpointRecord("10.0.0.2", { ...local, ready: false }),
      makeEndpointRecord("10.0.0.3", { ...local, ready: false, terminating: true }),
    ];
    assert.deepEqual(count([makeSlice({ endpoints })]), {});
  });

  test("without a node name nothing is local", () => {
    assert.deepEqual(count([makeSlice({ endpoints: [makeEndpointRecord("10.0.0.1", { nodeName: "" })] })], ""), {});
  });

  test("go when the endpoints go", () => {
    const slice = makeSlice({ endpoints: [makeEndpointRecord("10.0.0.1", local)] });
    const { tracker, live } = withApplied(slice);
    assert.equal(tracker.localReadyCounts.size, 1);
    tracker.update(slice, true);
    runAtOnce(tracker.apply(live));
    assert.equal(tracker.localReadyCounts.size, 0);
  });
});
