import assert from "node:assert/strict";
import { test } from "node:test";
import { service, slice } from "../../../../../test/apiserver/example-objects.ts";
import { RecordingSink } from "../../../../../test/apiserver/recording-sink.ts";
import { recordingLog } from "../testing/recording-log.ts";
import { ObjectCache } from "./object-cache.ts";
import { CLUSTER_RESOURCES } from "./resources.ts";

const [services, endpointSlices] = CLUSTER_RESOURCES;

function setUp() {
  const sink = new RecordingSink();
  const log = recordingLog();
  return {
    sink,
    log,
    cache: new ObjectCache(services, sink, log),
    slices: new ObjectCache(endpointSlices, sink, log),
  };
}

/** `service(index)` at a resource version. */
function at(version: number, index: number, spec: Readonly<Record<string, unknown>> = {}) {
  const object = service(index, spec);
  return { ...object, metadata: { ...object.metadata, resourceVersion: String(version) } };
}

test("a second list becomes the difference to the first", () => {
  const { sink, cache } = setUp();
  cache.beginList();
  for (const index of [1, 2, 3]) assert.equal(cache.take("listed", at(10, index)), "10");
  cache.endList();
  sink.take("services");
  cache.beginList();
  cache.take("listed", at(10, 1));
  cache.take("listed", at(20, 2));
  cache.take("listed", at(21, 3, { type: "NodePort" }));
  cache.take("listed", at(22, 4));
  assert.deepEqual(sink.take("services"), ["update default/svc-3", "add default/svc-4"]);
  cache.beginList();
  for (const index of [2, 3, 4]) cache.take("listed", at(30, index));
  cache.endList();
  assert.deepEqual(sink.take("services"), ["update default/svc-3", "delete default/svc-1"]);
});

test("a list that was not ended deletes nothing", () => {
  const { sink, cache } = setUp();
  cache.beginList();
  cache.take("listed", at(1, 1));
  cache.take("listed", at(1, 2));
  cache.endList();
  cache.beginList();
  cache.take("listed", at(1, 1));
  cache.beginList();
  cache.take("listed", at(1, 1));
  cache.take("listed", at(1, 2));
  cache.endList();
  assert.deepEqual(sink.take("services"), ["add default/svc-1", "add default/svc-2"]);
});

test("an object that goes bad keeps its last good version, is told of once per version, and recovers", () => {
  const { sink, log, cache } = setUp();
  cache.take("changed", at(1, 1));
  const bad = at(2, 1, { ports: [{ port: 99_999, protocol: "TCP" }] });
  assert.equal(cache.take("changed", bad), "2");
  cache.beginList();
  cache.take("listed", bad);
  cache.endList();
  assert.deepEqual(sink.keys("services"), ["default/svc-1"]);
  assert.equal(log.errors().length, 1);
  assert.match(log.errors()[0] ?? "", /spec\.ports\[0\]\.port must be .*99999: its last good version stays in use/);
  assert.equal(log.lines[0]?.facts.object, "Service default/svc-1");
  cache.take("changed", at(3, 1, { type: "NodePort" }));
  assert.deepEqual(sink.take("services"), ["add default/svc-1", "update default/svc-1"]);
});

test("a bad object that goes away is deleted like any other", () => {
  const { sink, cache } = setUp();
  cache.take("changed", at(1, 1));
  cache.take("changed", at(2, 1, { ports: "none" }));
  cache.take("deleted", { metadata: { namespace: "default", name: "svc-1" } });
  assert.deepEqual(sink.keys("services"), []);
});

test("what cannot be told from any object changes nothing", () => {
  const { sink, cache } = setUp();
  for (const raw of [
    null,
    1,
    {},
    { metadata: null },
    { metadata: { name: "a" } },
    { metadata: { name: "", namespace: "c" } },
    { metadata: { name: 7, namespace: "c" } },
  ]) {
    assert.equal(cache.take("listed", raw), undefined);
    assert.equal(cache.take("changed", raw), undefined);
    assert.equal(cache.take("deleted", raw), undefined);
  }
  assert.deepEqual(sink.take("services"), []);
});

test("an object whose name no object of a cluster can have is left out by name, and hides nothing", () => {
  const { sink, log, cache } = setUp();
  cache.beginList();
  cache.take("listed", at(1, 1));
  for (const [name, namespace] of [
    ["__proto__", "c"],
    ['a"; drop', "c"],
    ["a", "C d"],
    ["x".repeat(254), "c"],
  ]) {
    const raw = { metadata: { name, namespace, resourceVersion: "7" } };
    assert.equal(cache.take("listed", raw), "7");
    assert.equal(cache.take("changed", raw), "7");
    assert.equal(cache.take("deleted", raw), "7");
  }
  cache.take("listed", at(2, 2));
  cache.endList();
  assert.deepEqual(sink.take("services"), ["add default/svc-1", "add default/svc-2"]);
  assert.match(log.errors()[0] ?? "", /metadata\.name must be a DNS subdomain.*: it is left out/);
  assert.equal(log.lines[0]?.facts.object, 'Service "__proto__"');
});

for (const [how, mend] of [
  ["could be used meanwhile", (cache: ObjectCache<"services">) => cache.take("changed", service(1))],
  ["was deleted meanwhile", (cache: ObjectCache<"services">) => cache.take("deleted", service(1))],
] as const) {
  test(`an object that ${how} is told of again, in the same version too`, () => {
    const { log, cache } = setUp();
    // Objects without a version count as the same version.
    const bad = service(1, { ports: 7 });
    cache.take("changed", bad);
    cache.take("changed", bad);
    assert.equal(log.errors().length, 1);
    mend(cache);
    cache.take("changed", bad);
    assert.equal(log.errors().length, 2);
  });
}

test("a slice whose content changed under the same name is an update with the old record", () => {
  const { sink, slices } = setUp();
  const version = (resourceVersion: string, generation: number) => {
    const object = slice(1, 2, generation);
    return { ...object, metadata: { ...object.metadata, resourceVersion } };
  };
  slices.take("changed", version("1", 0));
  slices.take("changed", version("2", 1));
  assert.deepEqual(sink.take("endpointSlices"), ["add default/svc-1-abcde", "update default/svc-1-abcde"]);
});

test("redelivery tells every object once, and stops at a turn when told to", async () => {
  const { sink, cache } = setUp();
  for (let index = 0; index < 1_200; index++) cache.take("changed", at(1, index));
  sink.take("services");
  await cache.redeliver(new AbortController().signal);
  const events = sink.take("services");
  assert.equal(events.length, 1_200);
  assert.ok(events.every((event) => event.startsWith("update ")));
  await cache.redeliver(AbortSignal.abort());
  assert.equal(sink.take("services").length, 500);
});
