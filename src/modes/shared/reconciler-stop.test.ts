import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "../../agent/sync/testing/fake-clock.ts";
import { KernelWaits } from "../../kernel/kernel-waits.ts";
import { silentLogger } from "../../logging/logger.ts";
import { KeyOwners } from "../../model/key-owners.ts";
import { makeServicePort } from "../../model/testing/records.ts";
import { Reconciler, type Target } from "./reconciler.ts";
import { WantedParts } from "./wanted-parts.ts";

interface Kinds {
  readonly ports: string;
}

test("a sync that ends after the stop with something refused leaves no timer", async () => {
  const clock = new FakeClock();
  const stop = new AbortController();
  const target: Target<Kinds, object> = {
    newWanted: () => new WantedParts<Kinds>({ ports: new KeyOwners() }),
    look: async () => ({}),
    refresh: async (_known, { changedPorts }) => changedPorts,
    plan: (key) => ({ ports: [[key, key]] }),
    apply: async ({ notes }) => {
      stop.abort();
      notes.refuse("ns1/svc1:p/TCP", "a part", "no");
    },
  };
  const waits = new KernelWaits();
  const reconciler = new Reconciler({
    ...{ target, place: "the kernel", waits, longestRetryMs: 30_000, clock, log: silentLogger },
  });
  reconciler.retryBy(() => {}, stop.signal);
  const port = makeServicePort();
  const services = new Map([[port.name.key, port]]);
  const input = { isFullSync: true, services, endpoints: new Map(), endpointCount: 0, zone: undefined };
  await reconciler.sync({ ...input, changedPorts: new Set(services.keys()), serviceCIDRs: [] }, stop.signal);
  assert.equal(clock.timerCount, 0, "it keeps the process from ending");
});
