import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { FakeClock } from "../../agent/sync/testing/fake-clock.ts";
import { silentLogger } from "../../logging/logger.ts";
import { monitorCanaries } from "./canary-monitor.ts";
import { IptablesError, type Presence } from "./iptables.ts";

const CHAIN = "KUBE-PROXY-CANARY";
const INTERVAL_MS = 30_000;

let iptables: MemoryIptables;
let clock: FakeClock;
let stop: AbortController;
let losses: number;
let running: Promise<void>;

beforeEach(() => {
  iptables = new MemoryIptables("IPv4");
  clock = new FakeClock();
  stop = new AbortController();
  losses = 0;
});

afterEach(async () => {
  stop.abort();
  await running;
  assert.equal(clock.timerCount, 0);
});

function start(isIntact?: () => Promise<Presence>): void {
  running = monitorCanaries(
    {
      iptables,
      chain: CHAIN,
      intervalMs: INTERVAL_MS,
      onLost: () => {
        losses += 1;
      },
      ...(isIntact === undefined ? {} : { isIntact }),
      log: silentLogger,
      clock,
    },
    stop.signal,
  );
}

function canaries(): string[] {
  return (["mangle", "nat", "filter"] as const).filter((table) => iptables.chains(table).includes(CHAIN));
}

test("canaries stand in all three tables until the monitor is stopped", async () => {
  start();
  await clock.advance(10 * INTERVAL_MS);
  assert.deepEqual(canaries(), ["mangle", "nat", "filter"]);
  assert.equal(losses, 0);
  stop.abort();
  await running;
  assert.deepEqual(canaries(), []);
});

test("a flush of all tables is noticed at the next interval, and the canaries are put back", async () => {
  start();
  await clock.advance(INTERVAL_MS - 1);
  for (const table of ["mangle", "nat", "filter"] as const) iptables.flush(table, { deleteChains: true });
  await clock.settle();
  assert.equal(losses, 0);
  await clock.advance(1);
  assert.equal(losses, 1);
  assert.deepEqual(canaries(), ["mangle", "nat", "filter"]);
  await clock.advance(10 * INTERVAL_MS);
  assert.equal(losses, 1);
});

test("a flush that is still going on is waited for", async () => {
  start();
  await clock.settle();
  iptables.flush("mangle", { deleteChains: true });
  await clock.advance(INTERVAL_MS + 1_000);
  iptables.flush("nat", { deleteChains: true });
  await clock.advance(1_000);
  assert.equal(losses, 0);
  iptables.flush("filter", { deleteChains: true });
  await clock.advance(100);
  assert.equal(losses, 1);
});

test("when only the watched table is flushed, the reload comes after five seconds all the same", async () => {
  start();
  await clock.settle();
  iptables.flush("mangle", { deleteChains: true });
  await clock.advance(INTERVAL_MS + 4_900);
  assert.equal(losses, 0);
  await clock.advance(200);
  assert.equal(losses, 1);
});

test("a held lock is not mistaken for a flush, not even in the other tables", async () => {
  start();
  await clock.settle();
  iptables.isLocked = true;
  await clock.advance(5 * INTERVAL_MS);
  assert.equal(losses, 0);
  iptables.isLocked = false;
  iptables.flush("mangle", { deleteChains: true });
  const presence = iptables.chainPresence.bind(iptables);
  iptables.chainPresence = async (table, chain) => (table === "mangle" ? await presence(table, chain) : "unknown");
  await clock.advance(INTERVAL_MS + 4_900);
  assert.equal(losses, 0);
});

test("creating canaries is retried until it works, and nothing is reported before", async () => {
  const restore = iptables.restore.bind(iptables);
  let failures = 2;
  iptables.restore = async (payload, options) => {
    const parts = [...payload];
    await restore(failures > 0 ? parts.slice(0, 2) : parts, options);
    if (failures > 0) {
      failures -= 1;
      throw new IptablesError("lock_held", "iptables-restore", 4, "locked");
    }
  };
  start();
  await clock.settle();
  assert.deepEqual(canaries(), ["mangle", "nat"]);
  await clock.advance(2 * INTERVAL_MS);
  assert.deepEqual(canaries(), ["mangle", "nat", "filter"]);
  assert.equal(losses, 0);
});

test("lost rules are noticed although all chains are still there", async () => {
  let presence: Presence = "present";
  start(async () => presence);
  await clock.advance(2 * INTERVAL_MS);
  presence = "unknown";
  await clock.advance(2 * INTERVAL_MS);
  assert.equal(losses, 0);
  presence = "absent";
  await clock.advance(INTERVAL_MS);
  assert.equal(losses, 0, "asked once more before it counts");
  await clock.advance(100);
  assert.equal(losses, 1);
});

test("rules that another program puts back at once are no loss", async () => {
  const answers: Presence[] = ["absent", "present"];
  start(async () => answers.shift() ?? "present");
  await clock.advance(3 * INTERVAL_MS);
  assert.equal(losses, 0);
});

test("a test that fails counts as unknown", async () => {
  start(async () => {
    throw new IptablesError("missing_tool", "iptables", -1, "no such program");
  });
  await clock.advance(3 * INTERVAL_MS);
  assert.equal(losses, 0);
});
