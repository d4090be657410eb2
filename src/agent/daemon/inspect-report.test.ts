import assert from "node:assert/strict";
import { test } from "node:test";
import type { Clock } from "../../async/clock.ts";
import { offlineState } from "../../contract/inspect/offline-state.ts";
import { silentLogger } from "../../logging/logger.ts";
import { ProxyHealth } from "../server/health/proxy-health.ts";
import { SyncJournal } from "../sync/journal/sync-journal.ts";
import { FakeClock } from "../sync/testing/fake-clock.ts";
import { SYNCED } from "../sync/testing/synced-status.ts";
import { type InspectedDaemon, statusReport } from "./inspect-report.ts";

/** A daemon with one family, on a machine whose clock can be set. */
function setUp() {
  const fake = new FakeClock();
  let setByMs = 0;
  const clock: Clock = {
    now: () => fake.now() + setByMs,
    monotonicMs: () => fake.monotonicMs(),
    setTimer: (delayMs, callback) => fake.setTimer(delayMs, callback),
    sleep: (delayMs, signal) => fake.sleep(delayMs, signal),
  };
  const health = new ProxyHealth({ clock, syncPeriodMs: 30_000 });
  const options = { family: "IPv4", nodeName: "node-a", allowExternalIPs: true, log: silentLogger } as const;
  const { state } = offlineState({ services: [], endpointSlices: [] }, options);
  const daemon: InspectedDaemon = {
    ...{ program: "kube-proxy-ts", mode: "nftables", node: "node-a", zone: () => undefined },
    families: [{ family: "IPv4", state, status: SYNCED }],
    verdict: () => health.verdict(),
    journal: new SyncJournal(),
    limits: () => [],
  };
  const setClock = (byMs: number): void => {
    setByMs += byMs;
  };
  return { clock: fake, health, setClock, report: () => statusReport(daemon) };
}

test("before the first sync that works there is no time since it, however long the loop has been running", async () => {
  const { clock, health, report } = setUp();
  const age = () => report().families[0]?.lastSyncAgeMs;
  assert.equal(age(), null);
  health.started("IPv4");
  health.queuedUpdate("IPv4");
  await clock.advance(35_000);
  assert.equal(age(), null);
  health.updated("IPv4");
  await clock.advance(2_000);
  assert.equal(age(), 2_000);
});

test("times since something are right where the machine's clock has been set meanwhile", async () => {
  const { clock, health, setClock, report } = setUp();
  health.updated("IPv4");
  health.setHeard("services");
  await clock.advance(3_000);
  for (const byMs of [86_400_000, -2 * 86_400_000]) {
    setClock(byMs);
    const { families, silentMs } = report();
    assert.deepEqual([families[0]?.lastSyncAgeMs, silentMs], [3_000, 3_000]);
  }
});
