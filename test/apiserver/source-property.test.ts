/**
 * Random changes, faults and lost history at the same time. In the end the delivered objects equal the server's; no
 * event contradicts earlier ones, and no object is deleted that existed all the time.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import fc from "../../testkit/support/fast-check.ts";
import { node, service, serviceCidr, slice } from "./example-objects.ts";
import { type Fault, WEB_PAGE } from "./faults.ts";
import { type Lifetime, settled, startSource } from "./source-under-test.ts";
import type { TestApiServer } from "./test-api-server.ts";

/** Objects from this number on are never deleted by a step. */
const PERMANENT = 100;
const PERMANENT_COUNT = 30;

type Step =
  | { readonly kind: "put"; readonly index: number; readonly generation: number }
  | { readonly kind: "delete"; readonly index: number }
  | { readonly kind: "hide"; readonly index: number }
  | { readonly kind: "fault"; readonly fault: Fault | undefined; readonly share: number }
  | { readonly kind: "watches"; readonly what: "cut" | "end" | "stall" | "garbage" | "bookmark" | "error" }
  | { readonly kind: "connections" }
  | { readonly kind: "compact" }
  | { readonly kind: "expire" }
  | { readonly kind: "streaming"; readonly isOn: boolean }
  | { readonly kind: "protobuf"; readonly isOn: boolean }
  | { readonly kind: "wait"; readonly ms: number };

const index = fc.integer({ min: 0, max: 12 });
const bytes = fc.integer({ min: 1, max: 20_000 });
const fault: fc.Arbitrary<Fault | undefined> = fc.oneof(
  fc.constant(undefined),
  fc.constantFrom(410, 429, 500, 503).map((code): Fault => ({ kind: "status", code })),
  fc.constantFrom<Fault>(WEB_PAGE, { kind: "reset" }),
  fc
    .tuple(fc.constantFrom("cut" as const, "truncate" as const, "stall" as const), bytes)
    .map(([kind, afterBytes]): Fault => ({ kind, afterBytes })),
);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("put" as const), index, generation: fc.nat({ max: 5 }) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("delete" as const), index }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("hide" as const), index }) },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant("fault" as const), fault, share: fc.integer({ min: 1, max: 3 }) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("watches" as const),
      what: fc.constantFrom(
        "cut" as const,
        "end" as const,
        "stall" as const,
        "garbage" as const,
        "bookmark" as const,
        "error" as const,
      ),
    }),
  },
  { weight: 1, arbitrary: fc.constantFrom<Step>({ kind: "connections" }, { kind: "compact" }, { kind: "expire" }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constantFrom("streaming" as const, "protobuf" as const), isOn: fc.boolean() }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("wait" as const), ms: fc.integer({ min: 1, max: 15 }) }) },
);

async function take(server: TestApiServer, current: Step): Promise<void> {
  switch (current.kind) {
    case "put":
      server.put("services", service(current.index, { healthCheckNodePort: 30_000 + current.generation }));
      server.put("endpointslices", slice(current.index, 1 + (current.generation % 3), current.generation));
      return;
    case "delete":
      server.delete("services", service(current.index));
      server.delete("endpointslices", slice(current.index));
      return;
    case "hide":
      server.put("services", service(current.index, { clusterIP: "None", clusterIPs: ["None"] }));
      return;
    case "fault": {
      let count = 0;
      server.switches.fault = () => (count++ % current.share === 0 ? current.fault : undefined);
      return;
    }
    case "watches":
      for (const watch of server.watches()) {
        if (current.what === "cut") watch.cut();
        else if (current.what === "end") watch.end();
        else if (current.what === "stall") watch.stall();
        else if (current.what === "garbage") watch.sendBytes('{"type":"MODIFIED","obj\n');
        else if (current.what === "error") watch.sendError({ code: 500 });
        else watch.sendBookmark();
      }
      return;
    case "connections":
      server.cutConnections();
      return;
    case "compact":
      server.store.compact();
      return;
    case "expire":
      server.pages.expireTokens();
      return;
    case "streaming":
      server.switches.hasWatchList = current.isOn;
      return;
    case "protobuf":
      server.switches.hasProtobuf = current.isOn;
      return;
    case "wait":
      await sleep(current.ms);
  }
}

/** The keys that the source must have delivered in the end. */
function visible(server: TestApiServer, plural: "services" | "endpointslices"): readonly string[] {
  return [...server.store.objects(plural)]
    .filter(([, { object }]) => !JSON.stringify(object.spec ?? {}).includes('"clusterIP":"None"'))
    .map(([key]) => key)
    .sort();
}

async function runHistory(lifetime: Lifetime, steps: readonly Step[], hasWatchList: boolean): Promise<void> {
  const source = await startSource(lifetime, {
    times: { watchTimeoutMs: 10_000, watchGraceMs: 2_000, listIdleMs: 100, streamIdleMs: 8_000 },
    prepare: (server) => {
      server.switches.hasWatchList = hasWatchList;
      server.put("nodes", node("node-a"));
      server.put("servicecidrs", serviceCidr());
      for (let number = PERMANENT; number < PERMANENT + PERMANENT_COUNT; number++) {
        server.put("services", service(number));
        server.put("endpointslices", slice(number));
      }
    },
  });
  const { server, sink } = source;
  for (const current of steps) await take(server, current);
  server.switches.fault = () => undefined;
  await settled(source, "services");
  await settled(source, "endpointslices");
  assert.deepEqual(sink.keys("services"), visible(server, "services"));
  assert.deepEqual(sink.keys("endpointSlices"), visible(server, "endpointslices"));
  for (const record of sink.state.endpointSlices.values()) {
    const key = "namespace" in record ? `${record.namespace}/${record.name}` : "";
    const stored = server.store.objects("endpointslices").get(key)?.object;
    assert.equal("resourceVersion" in record && record.resourceVersion, stored?.metadata.resourceVersion, key);
  }
  for (const kind of ["services", "endpointSlices"] as const) {
    const flaps = sink.events[kind].filter((event) => /^delete default\/svc-1[0-2]\d/.test(event));
    assert.deepEqual(flaps, []);
  }
  assert.deepEqual(sink.keys("nodes"), ["node-a"]);
}

test("after any history of changes and faults, the delivered objects are the server's", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 60 }), fc.boolean(), async (steps, hasWatchList) => {
      const cleanups: (() => Promise<void>)[] = [];
      try {
        await runHistory({ after: (callback) => void cleanups.push(callback) }, steps, hasWatchList);
      } finally {
        for (const cleanUp of cleanups) await cleanUp();
      }
    }),
    { numRuns: 15 },
  );
});
