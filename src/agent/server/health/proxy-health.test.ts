import assert from "node:assert/strict";
import { test } from "node:test";
import type { NodeRecord } from "../../../model/objects.ts";
import { FakeClock } from "../../sync/testing/fake-clock.ts";
import { healthAnswer } from "./health-server.ts";
import { ProxyHealth } from "./proxy-health.ts";
import { formatRfc3339 } from "./rfc3339.ts";

const START_MS = Date.UTC(2026, 0, 2, 3, 4, 5, 120);

function setUp() {
  const clock = new FakeClock(START_MS);
  return { clock, health: new ProxyHealth({ clock, syncPeriodMs: 30_000 }) };
}

function node(overrides: Partial<NodeRecord> = {}): NodeRecord {
  return {
    name: "n1",
    uid: "u1",
    zone: undefined,
    addresses: [],
    podCIDRs: [],
    taintKeys: [],
    isBeingDeleted: false,
    ...overrides,
  };
}

test("healthy before any sync, and however long nothing is asked for", async () => {
  const { clock, health } = setUp();
  assert.equal(health.isHealthy(), true);
  health.queuedUpdate("IPv4");
  await clock.advance(1e9);
  assert.equal(health.isHealthy(), true, "a family that never synced does not count");
  health.updated("IPv4");
  await clock.advance(1e9);
  assert.equal(health.isHealthy(), true);
});

test("unhealthy exactly when a request has waited twice the sync period; later requests do not move that", async () => {
  const { clock, health } = setUp();
  health.updated("IPv4");
  health.queuedUpdate("IPv4");
  await clock.advance(59_999);
  health.queuedUpdate("IPv4");
  assert.equal(health.isHealthy(), true);
  await clock.advance(1);
  assert.equal(health.isHealthy(), false);
  health.updated("IPv4");
  assert.equal(health.isHealthy(), true);
});

test("one lagging family is enough, and the other cannot cure it", async () => {
  const { clock, health } = setUp();
  health.updated("IPv4");
  health.updated("IPv6");
  health.queuedUpdate("IPv6");
  await clock.advance(60_000);
  health.updated("IPv4");
  const { families, isHealthy } = health.verdict();
  assert.equal(isHealthy, false);
  assert.deepEqual(
    families.map((each) => [each.family, each.isHealthy]),
    [
      ["IPv4", true],
      ["IPv6", false],
    ],
  );
});

test("a node is eligible once seen, unless it is being deleted or carries the autoscaler's taint", () => {
  const { health } = setUp();
  const eligible = () => health.verdict().isNodeEligible;
  assert.equal(eligible(), false);
  health.onNode(node({ taintKeys: ["node.kubernetes.io/unreachable"] }));
  assert.equal(eligible(), true);
  health.onNode(node({ taintKeys: ["ToBeDeletedByClusterAutoscaler"] }));
  assert.equal(eligible(), false);
  health.onNode(node({ isBeingDeleted: true }));
  assert.equal(eligible(), false);
  health.onNode(node());
  assert.equal(eligible(), true);
});

test("bodies are upstream's, byte for byte", async () => {
  const { clock, health } = setUp();
  const t = (ms: number) => formatRfc3339(START_MS + ms);
  assert.deepEqual(healthAnswer(health.verdict(), true), {
    status: 503,
    body: `{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"${t(0)}","nodeEligible":false,"healthy":true}`,
  });
  health.onNode(node());
  health.updated("IPv6");
  await clock.advance(1000);
  health.updated("IPv4");
  health.queuedUpdate("IPv6");
  await clock.advance(500);
  const healthyStatus = `"status":{"IPv4":{"lastUpdated":"${t(1000)}","healthy":true},"IPv6":{"lastUpdated":"${t(0)}","healthy":true}}`;
  assert.deepEqual(healthAnswer(health.verdict(), true), {
    status: 200,
    body: `{"lastUpdated":"${t(1500)}","currentTime":"${t(1500)}","nodeEligible":true,"healthy":true,${healthyStatus}}`,
  });
  assert.deepEqual(healthAnswer(health.verdict(), false), {
    status: 200,
    body: `{"lastUpdated":"${t(1500)}","currentTime":"${t(1500)}","healthy":true,${healthyStatus}}`,
  });
  await clock.advance(60_000);
  assert.deepEqual(healthAnswer(health.verdict(), false), {
    status: 503,
    body: `{"lastUpdated":"${t(1000)}","currentTime":"${t(61_500)}","healthy":false,${healthyStatus.replace("true}}", "false}}")}}`,
  });
});

test("an ineligible node answers 503 on healthz and says that the proxy itself is healthy", () => {
  const { health } = setUp();
  health.updated("IPv4");
  const { status, body } = healthAnswer(health.verdict(), true);
  assert.equal(status, 503);
  assert.match(body, /"nodeEligible":false,"healthy":true,/);
  assert.equal(healthAnswer(health.verdict(), false).status, 200);
});

test("refused parts are named after everything else, per family, until they are gone", () => {
  const { health } = setUp();
  let refused = [{ subject: "ns/svc:port", reason: 'line 3: "bad"' }];
  let stale = [{ subject: "stale chain KUBE-SEP-X", reason: "busy" }];
  health.setMode("IPv6", {}, () => refused);
  health.setMode("IPv4", {}, () => stale);
  assert.ok(
    healthAnswer(health.verdict(), false).body.endsWith(
      ',"failures":[{"ipFamily":"IPv4","subject":"stale chain KUBE-SEP-X","reason":"busy"},{"ipFamily":"IPv6","subject":"ns/svc:port","reason":"line 3: \\"bad\\""}]}',
    ),
  );
  refused = [];
  stale = [];
  assert.doesNotMatch(healthAnswer(health.verdict(), false).body, /failures/);
});

test("a health-check port that is taken changes no verdict", () => {
  const { health } = setUp();
  const taken = { subject: "health-check port 31234 of ns/s", reason: "EADDRINUSE" };
  health.setMode("IPv6", {}, () => [taken]);
  assert.deepEqual(health.verdict().failures, [{ ipFamily: "IPv6", ...taken }]);
  assert.equal(health.isHealthy(), true);
});

test("a resource that cannot be watched is named until it can, and changes no verdict", () => {
  const { health } = setUp();
  health.updated("IPv4");
  health.setClusterFailure("watch of services", "watch services: 403 Forbidden");
  const { status, body } = healthAnswer(health.verdict(), false);
  assert.equal(status, 200);
  assert.ok(body.endsWith(',"failures":[{"subject":"watch of services","reason":"watch services: 403 Forbidden"}]}'));
  health.setClusterFailure("watch of services", undefined);
  assert.doesNotMatch(healthAnswer(health.verdict(), false).body, /failures/);
});

test("what the start waits for is shown at once, and is unhealthy after twice the sync period", async () => {
  const { clock, health } = setUp();
  health.setWaiting("HNS has no network");
  assert.deepEqual(health.verdict().failures, [{ subject: "start", reason: "HNS has no network" }]);
  assert.equal(health.isHealthy(), true);
  await clock.advance(59_999);
  health.setWaiting("HNS does not answer");
  assert.equal(health.isHealthy(), true);
  await clock.advance(1);
  assert.equal(health.isHealthy(), false, "another reason does not start the time again");
  health.setWaiting(undefined);
  assert.equal(health.isHealthy(), true);
  assert.deepEqual(health.verdict().failures, []);
});

test("what a mode does in a lesser way is told and changes no status; all that it says of itself is told to who asks for more", () => {
  const { health } = setUp();
  health.updated("IPv4");
  let degraded = [{ subject: "nothing is decided at the socket", reason: "EPERM" }];
  const remarks = ["nothing is decided at the socket: EPERM"];
  const asked = () => assert.fail("remarks may cost a dump of a map, and were not asked for");
  health.setMode("IPv4", Object.defineProperty({ degraded: [] }, "remarks", { get: asked }));
  healthAnswer(health.verdict(), false);
  health.setMode("IPv4", { remarks, degraded: [] });
  assert.doesNotMatch(healthAnswer(health.verdict(), false).body, /degraded|remarks/);
  const mode = {
    remarks,
    get degraded() {
      return degraded;
    },
  };
  health.setMode("IPv4", mode, () => [{ subject: "ns/svc:port", reason: "bad" }]);
  const { status, body } = healthAnswer(health.verdict(), false);
  assert.equal(status, 200);
  assert.ok(
    body.endsWith(
      ',"failures":[{"ipFamily":"IPv4","subject":"ns/svc:port","reason":"bad"}],"degraded":[{"ipFamily":"IPv4","subject":"nothing is decided at the socket","reason":"EPERM"}]}',
    ),
  );
  degraded = [];
  const verbose = JSON.parse(healthAnswer(health.verdict(), false, true).body);
  assert.deepEqual([verbose.status.IPv4.remarks, "degraded" in verbose], [remarks, false]);
});
