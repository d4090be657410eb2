/** What a proxier records about its syncs: why each ran, how it ended, how long its parts took. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ProxierBench } from "./testing/proxier-bench.ts";
import { addService } from "./testing/proxier-events.ts";
import { sliceRecord } from "./testing/records.ts";

const recordsOf = ({ journal }: ProxierBench) => journal.after(0).records;

test("the first sync, then one with the objects that changed, and how long they waited", async () => {
  const bench = new ProxierBench();
  await bench.start();
  addService(bench, "other");
  await bench.clock.settle();
  bench.backend.script = () => ({ durationMs: 7 });
  await bench.clock.advance(400);
  addService(bench, "web");
  bench.proxier.onEndpointSlice({ kind: "add", object: { ...sliceRecord("web", []), name: "web-1" } });
  await bench.clock.advance(1000);
  const [first, , second, ...more] = recordsOf(bench);
  assert.deepEqual([first?.isFullSync, first?.causes], [true, [{ kind: "start" }]]);
  assert.deepEqual(second?.causes, [
    { kind: "object", object: "Service", change: "add", namespace: "ns", name: "web", service: "web" },
    { kind: "object", object: "EndpointSlice", change: "add", namespace: "ns", name: "web-1", service: "web" },
  ]);
  assert.equal(more.length, 0);
  const { stages, isFullSync, servicePorts, result, family } = second ?? assert.fail();
  assert.deepEqual(stages, { waiting: 600, model: 0, rules: 7, kernel: null, after: 0 });
  assert.deepEqual(
    { isFullSync, servicePorts, result, family },
    { isFullSync: false, servicePorts: 1, result: "done", family: "IPv4" },
  );
});

test("of many changes the first are named, and the others counted", async () => {
  const bench = new ProxierBench();
  await bench.start();
  await bench.clock.advance(100);
  for (let index = 0; index < 20; index += 1) addService(bench, `s${index}`);
  await bench.clock.advance(1000);
  const last = recordsOf(bench).at(-1);
  assert.deepEqual([last?.causes.length, last?.furtherCauses, last?.servicePorts], [8, 12, 20]);
});

test("what was refused, what failed, and that it is tried again", async () => {
  const bench = new ProxierBench();
  await bench.start();
  bench.backend.script = (call) =>
    call === 2 ? { refused: ["ns/a:p/TCP"] } : call === 3 ? { error: new Error("no kernel") } : {};
  addService(bench, "a");
  await bench.clock.advance(100_000);
  const results = recordsOf(bench).map(({ result, failures, causes }) => [
    result,
    causes[0]?.kind,
    failures[0]?.reason,
  ]);
  assert.deepEqual(results, [
    ["done", "start", undefined],
    ["refused", "object", "refused"],
    ["failed", "retry", "no kernel"],
    ["done", "retry", undefined],
  ]);
});

test("a repair says that rules were destroyed; zone and addresses of the node are causes as well", async () => {
  const bench = new ProxierBench();
  await bench.start();
  for (const lost of [undefined, { ports: new Set<string>() }, { ports: new Set(["ns/a:p/TCP"]) }]) {
    bench.backend.lose?.(lost);
    await bench.clock.advance(1000);
  }
  bench.proxier.onZone("zone-b");
  bench.proxier.onNodeAddresses();
  await bench.clock.advance(1000);
  assert.deepEqual(
    recordsOf(bench).map(({ causes }) => causes),
    [
      [{ kind: "start" }],
      ...[null, null, 1].map((servicePorts) => [{ kind: "repair", servicePorts, by: null }]),
      [{ kind: "zone" }, { kind: "node-addresses" }],
    ],
  );
});
