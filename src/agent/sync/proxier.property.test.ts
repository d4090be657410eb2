/** Random histories: after any events in any order, the kernel ends up with what the API wants. */
import assert from "node:assert/strict";
import { it } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { silentLogger } from "../../logging/logger.ts";
import type { ObjectEvent } from "../../model/object-source.ts";
import type { EndpointSliceRecord, ServiceRecord } from "../../model/objects.ts";
import { ProxyState } from "../../model/proxy-state.ts";
import { programAll } from "./testing/fake-backend.ts";
import { ProxierBench } from "./testing/proxier-bench.ts";
import { serviceRecord, sliceRecord } from "./testing/records.ts";

const NAMES = ["a", "b", "c"];

type Step =
  | { readonly kind: "service"; readonly name: string; readonly port: number | undefined }
  | { readonly kind: "slice"; readonly name: string; readonly endpoints: number | undefined }
  | { readonly kind: "pass"; readonly ms: number }
  | { readonly kind: "zone"; readonly zone: string }
  | { readonly kind: "sync" | "lose" | "start" | "services synced" | "slices synced" };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("service"), name: name(), port: maybe(80, 82) }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("slice"), name: name(), endpoints: maybe(1, 4) }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("pass"), ms: fc.constantFrom(0, 1, 300, 1000, 2500) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("zone"), zone: fc.constantFrom("x", "y") }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constantFrom("sync", "lose", "start", "services synced", "slices synced") }),
  },
);

const script = fc.record({
  durationMs: fc.constantFrom(0, 1, 400, 1500),
  ending: fc.constantFrom("ok", "ok", "ok", "throws", "refuses"),
});

function name(): fc.Arbitrary<string> {
  return fc.constantFrom(...NAMES);
}

function maybe(min: number, max: number): fc.Arbitrary<number | undefined> {
  return fc.option(fc.integer({ min, max }), { nil: undefined });
}

/** Turns desired states into the events that a source would send, and remembers the newest object of each name. */
class Cluster {
  readonly services = new Map<string, ServiceRecord>();
  readonly slices = new Map<string, EndpointSliceRecord>();

  setService(name: string, port: number | undefined): ObjectEvent<ServiceRecord> | undefined {
    const ports = [{ name: "p", protocol: "TCP" as const, port: port ?? 0, nodePort: 0 }];
    return replace(this.services, name, port === undefined ? undefined : serviceRecord(name, { ports }));
  }

  setSlice(name: string, endpoints: number | undefined): ObjectEvent<EndpointSliceRecord> | undefined {
    const addresses = Array.from({ length: endpoints ?? 0 }, (_, index) => `10.1.0.${index + 1}`);
    return replace(this.slices, name, endpoints === undefined ? undefined : sliceRecord(name, addresses));
  }

  /** What one full sync from scratch would leave in the kernel. */
  wanted(): Map<string, string> {
    const state = new ProxyState({
      family: "IPv4",
      nodeName: "node",
      allowExternalIPs: true,
      now: () => 0,
      log: silentLogger,
    });
    for (const object of this.services.values()) state.onService({ kind: "add", object });
    for (const object of this.slices.values()) state.onEndpointSlice({ kind: "add", object });
    state.applyChanges();
    return programAll(state);
  }
}

function replace<T>(objects: Map<string, T>, name: string, object: T | undefined): ObjectEvent<T> | undefined {
  const old = objects.get(name);
  if (object === undefined) {
    objects.delete(name);
    return old === undefined ? undefined : { kind: "delete", object: old };
  }
  objects.set(name, object);
  return old === undefined ? { kind: "add", object } : { kind: "update", old, object };
}

function sorted(programmed: ReadonlyMap<string, string>): [string, string][] {
  return [...programmed].sort(([a], [b]) => (a < b ? -1 : 1));
}

it("loses no change, with any events, sync durations and failures together", async () => {
  const history = fc.record({
    steps: fc.array(step, { maxLength: 40 }),
    scripts: fc.array(script, { maxLength: 15 }),
    minMs: fc.constantFrom(0, 1000),
    skipsPeriodicFullSync: fc.boolean(),
    portsAtOnce: fc.constantFrom(1, 2, Number.POSITIVE_INFINITY),
  });
  await fc.assert(
    fc.asyncProperty(history, async ({ steps, scripts, minMs, skipsPeriodicFullSync, portsAtOnce }) => {
      const bench = new ProxierBench({ minMs });
      const cluster = new Cluster();
      const { backend, proxier, clock, health } = bench;
      backend.skipsPeriodicFullSync = skipsPeriodicFullSync;
      backend.portsAtOnce = portsAtOnce;
      const syncs: { readonly startMs: number; readonly durationMs: number; readonly isGood: boolean }[] = [];
      let serving = 0;
      let loopStartMs = 0;
      backend.script = (call, input) => {
        const { durationMs, ending } = scripts[call - 1] ?? { durationMs: 10, ending: "ok" };
        const error = ending === "throws" ? new Error("restore failed") : undefined;
        const refused = ending === "refuses" ? [...input.changedPorts].slice(0, 1) : [];
        syncs.push({ startMs: clock.monotonicMs(), durationMs, isGood: error === undefined && refused.length === 0 });
        const isServed = [...input.services.keys()].some((key) => !refused.includes(key));
        if (error === undefined && (isServed || input.services.size === 0)) serving += 1;
        return error === undefined ? { durationMs, refused } : { durationMs, error };
      };
      const once = new Set<string>();
      const doOnce = (what: "start" | "services synced" | "slices synced"): void => {
        if (once.has(what)) return;
        once.add(what);
        if (what === "start") {
          loopStartMs = clock.monotonicMs();
          void proxier.run(bench.stop.signal);
        } else if (what === "services synced") proxier.onSynced("services");
        else proxier.onSynced("endpointSlices");
      };
      const take = async (next: Step): Promise<void> => {
        switch (next.kind) {
          case "service": {
            const event = cluster.setService(next.name, next.port);
            if (event !== undefined) proxier.onService(event);
            break;
          }
          case "slice": {
            const event = cluster.setSlice(next.name, next.endpoints);
            if (event !== undefined) proxier.onEndpointSlice(event);
            break;
          }
          case "pass":
            await clock.advance(next.ms);
            break;
          case "zone":
            proxier.onZone(next.zone);
            break;
          case "sync":
            proxier.sync();
            break;
          case "lose":
            backend.lose?.();
            break;
          default:
            doOnce(next.kind);
        }
      };
      for (const next of steps) await take(next);
      for (const what of ["start", "services synced", "slices synced"] as const) doOnce(what);
      // Fewer failures than minutes left: everything settles well before the hourly sync could hide a loss.
      await clock.advance(17 * 32_000);
      assert.deepEqual(sorted(backend.programmed), sorted(cluster.wanted()));
      assert.deepEqual(backend.violations, []);
      assert.deepEqual(proxier.status, {
        isInitialised: true,
        isSyncing: false,
        needsFullSync: false,
        isFailing: false,
        failures: [],
        remarks: [],
      });
      const updates = health.calls.filter((call) => call === "updated IPv4").length;
      assert.equal(updates, serving, "one for each sync after which the node serves");
      assert.equal(health.isPending, false);
      for (const [index, { startMs, durationMs, isGood }] of syncs.entries()) {
        const latestMs = Math.max(startMs + durationMs + 30_000, loopStartMs + 30_000);
        const nextMs = syncs[index + 1]?.startMs ?? Number.POSITIVE_INFINITY;
        assert.ok(isGood || nextMs <= latestMs, `the sync that failed at ${startMs} was retried at ${nextMs}`);
      }
      bench.stop.abort();
      await clock.settle();
      assert.equal(clock.timerCount, 0);
    }),
    { numRuns: 300 },
  );
});
