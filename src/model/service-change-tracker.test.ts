import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { runAtOnce } from "../async/turns.ts";
import { silentLogger } from "../logging/logger.ts";
import type { ServiceRecord } from "./objects.ts";
import { type ServiceChanges, ServiceChangeTracker } from "./service-change-tracker.ts";
import type { ServicePort } from "./service-port.ts";
import { makeService } from "./testing/records.ts";

function makeTracker() {
  return new ServiceChangeTracker({ family: "IPv4", allowExternalIPs: true, log: silentLogger });
}

function plain(changes: ServiceChanges) {
  return { updatedServices: [...changes.updatedServices], changedPorts: [...changes.changedPorts].sort() };
}

const port = (name: string, number: number) => ({ name, protocol: "TCP", port: number, nodePort: 0 }) as const;
const NOTHING = { updatedServices: [], changedPorts: [] };

/** A tracker and live map that already contain one service. */
function withApplied(service: ServiceRecord) {
  const tracker = makeTracker();
  const live = new Map<string, ServicePort>();
  tracker.update(undefined, service);
  runAtOnce(tracker.apply(live));
  return { tracker, live };
}

describe("service change tracker", () => {
  test("an event without objects is nothing", () => {
    assert.equal(makeTracker().update(undefined, undefined), false);
  });

  test("an addition is pending until it is applied, once", () => {
    const tracker = makeTracker();
    const live = new Map<string, ServicePort>();
    assert.equal(tracker.update(undefined, makeService()), true);
    assert.equal(tracker.pendingCount, 1);
    assert.deepEqual([...live.keys()], []);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))), {
      updatedServices: ["ns1/svc1"],
      changedPorts: ["ns1/svc1:p/TCP"],
    });
    assert.deepEqual([...live.keys()], ["ns1/svc1:p/TCP"]);
    assert.equal(tracker.pendingCount, 0);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))), NOTHING);
  });

  test("adding and deleting before a sync cancels out", () => {
    const tracker = makeTracker();
    tracker.update(undefined, makeService());
    assert.equal(tracker.update(makeService(), undefined), false);
    assert.equal(tracker.pendingCount, 0);
  });

  test("an edit and its revert cancel out", () => {
    const { tracker, live } = withApplied(makeService());
    const edited = makeService({ ports: [port("p", 81)] });
    assert.equal(tracker.update(makeService(), edited), true);
    assert.equal(tracker.update(edited, makeService()), false);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))), NOTHING);
  });

  test("a resync, by reference or by value, is no change", () => {
    const service = makeService();
    const { tracker } = withApplied(service);
    assert.equal(tracker.update(service, service), false);
    assert.equal(tracker.update(service, makeService()), false);
  });

  test("a resync while another change of the service is pending keeps that change", () => {
    const { tracker, live } = withApplied(makeService());
    const edited = makeService({ ports: [port("p", 81)] });
    tracker.update(makeService(), edited);
    assert.equal(tracker.update(edited, edited), true);
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))).changedPorts, ["ns1/svc1:p/TCP"]);
  });

  test("an event that changes nothing still answers true while another service is pending", () => {
    const { tracker } = withApplied(makeService());
    tracker.update(undefined, makeService({ name: "svc2" }));
    const service = makeService();
    assert.equal(tracker.update(service, service), true);
    assert.equal(tracker.update(makeService(), makeService()), true);
    assert.equal(tracker.pendingCount, 1);
  });

  test("previous is what the first event of a row said, not the second's", () => {
    const { tracker, live } = withApplied(makeService({ ports: [port("a", 1)] }));
    tracker.update(makeService({ ports: [port("a", 1)] }), makeService({ ports: [port("b", 2)] }));
    tracker.update(makeService({ ports: [port("b", 2)] }), makeService({ ports: [port("c", 3)] }));
    runAtOnce(tracker.apply(live));
    assert.deepEqual([...live.keys()], ["ns1/svc1:c/TCP"]);
  });

  test("renaming one of two ports removes the old name and adds the new one in one go", () => {
    const before = makeService({ ports: [port("a", 1), port("b", 2)] });
    const { tracker, live } = withApplied(before);
    tracker.update(before, makeService({ ports: [port("a", 1), port("c", 2)] }));
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))), {
      updatedServices: ["ns1/svc1"],
      changedPorts: ["ns1/svc1:b/TCP", "ns1/svc1:c/TCP"],
    });
    assert.deepEqual([...live.keys()].sort(), ["ns1/svc1:a/TCP", "ns1/svc1:c/TCP"]);
  });

  test("headless and ExternalName services never show up as updated", () => {
    const tracker = makeTracker();
    assert.equal(tracker.update(undefined, makeService({ clusterIP: "None" })), false);
    assert.equal(tracker.update(undefined, makeService({ name: "ext", type: "ExternalName" })), false);
    assert.deepEqual(plain(runAtOnce(tracker.apply(new Map()))), NOTHING);
  });

  test("a service without ports is updated, unlike one that is skipped", () => {
    const tracker = makeTracker();
    assert.equal(tracker.update(undefined, makeService({ ports: [] })), true);
    assert.deepEqual(plain(runAtOnce(tracker.apply(new Map()))), { updatedServices: ["ns1/svc1"], changedPorts: [] });
  });

  test("becoming ExternalName removes the ports", () => {
    const { tracker, live } = withApplied(makeService());
    tracker.update(makeService(), makeService({ type: "ExternalName" }));
    assert.deepEqual(plain(runAtOnce(tracker.apply(live))).changedPorts, ["ns1/svc1:p/TCP"]);
    assert.equal(live.size, 0);
  });

  test("replacements are told with both sides", () => {
    const { tracker, live } = withApplied(makeService({ ports: [port("a", 1), port("b", 2)] }));
    const seen: string[] = [];
    tracker.update(
      makeService({ ports: [port("a", 1), port("b", 2)] }),
      makeService({ ports: [port("a", 7), port("c", 3)] }),
    );
    runAtOnce(tracker.apply(live, (key, before, after) => void seen.push(`${key} ${before?.port}→${after?.port}`)));
    assert.deepEqual(seen.sort(), ["ns1/svc1:a/TCP 1→7", "ns1/svc1:b/TCP 2→undefined", "ns1/svc1:c/TCP undefined→3"]);
  });

  test("problems are told for the new object only, and do not stop the service", () => {
    const problems: string[] = [];
    const tracker = new ServiceChangeTracker({
      family: "IPv4",
      allowExternalIPs: true,
      log: {
        ...silentLogger,
        error: (_message, _error, facts = {}) => void problems.push(`${facts.service} ${facts.value}`),
      },
    });
    tracker.update(makeService({ externalIPs: ["old"] }), makeService({ externalIPs: ["new", "1.1.1.1"] }));
    assert.deepEqual(problems, ["ns1/svc1 new"]);
    assert.equal(tracker.pendingCount, 1);
  });
});

describe("health-check node ports", () => {
  const balanced = makeService({ type: "LoadBalancer", externalTrafficPolicy: "Local", healthCheckNodePort: 31000 });

  test("appear when applied, follow changes, and go with the service", () => {
    const tracker = makeTracker();
    const live = new Map<string, ServicePort>();
    tracker.update(undefined, balanced);
    assert.equal(tracker.healthCheckNodePorts.size, 0);
    runAtOnce(tracker.apply(live));
    assert.deepEqual([...tracker.healthCheckNodePorts], [["ns1/svc1", 31000]]);
    const moved = { ...balanced, healthCheckNodePort: 31001 };
    tracker.update(balanced, moved);
    runAtOnce(tracker.apply(live));
    assert.deepEqual([...tracker.healthCheckNodePorts], [["ns1/svc1", 31001]]);
    tracker.update(moved, { ...moved, externalTrafficPolicy: "Cluster" });
    runAtOnce(tracker.apply(live));
    assert.equal(tracker.healthCheckNodePorts.size, 0);
  });

  test("a deleted service has none", () => {
    const { tracker, live } = withApplied(balanced);
    tracker.update(balanced, undefined);
    runAtOnce(tracker.apply(live));
    assert.equal(tracker.healthCheckNodePorts.size, 0);
  });
});
