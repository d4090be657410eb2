import assert from "node:assert/strict";
import { test } from "node:test";
import { service, slice } from "../../../../test/apiserver/example-objects.ts";
import { RecordingSink } from "../../../../test/apiserver/recording-sink.ts";
import { recordingLog } from "../testing/recording-log.ts";
import { identityInText, ObjectCache } from "./object-cache.ts";
import { CLUSTER_RESOURCES } from "./resources.ts";

const [services, endpointSlices] = CLUSTER_RESOURCES;

function setUp() {
  const sink = new RecordingSink();
  const log = recordingLog();
  return { sink, log, cache: new ObjectCache(services, sink, log), slices: new ObjectCache(endpointSlices, sink, log) };
}

/** `service(index)` at a resource version. */
function at(version: number, index: number, spec: Readonly<Record<string, unknown>> = {}) {
  const object = service(index, spec);
  return { ...object, metadata: { ...object.metadata, resourceVersion: String(version) } };
}

test("a second list becomes the difference to the first", () => {
  const { sink, cache } = setUp();
  cache.beginList();
  for (const index of [1, 2, 3]) assert.ok(cache.listed(at(10, index)));
  cache.endList();
  sink.take("services");
  cache.beginList();
  cache.listed(at(10, 1));
  cache.listed(at(20, 2));
  cache.listed(at(21, 3, { type: "NodePort" }));
  cache.listed(at(22, 4));
  assert.deepEqual(sink.take("services"), ["update default/svc-3", "add default/svc-4"]);
  cache.beginList();
  for (const index of [2, 3, 4]) cache.listed(at(30, index));
  cache.endList();
  assert.deepEqual(sink.take("services"), ["update default/svc-3", "delete default/svc-1"]);
});

test("a list that was not ended deletes nothing", () => {
  const { sink, cache } = setUp();
  cache.beginList();
  cache.listed(at(1, 1));
  cache.listed(at(1, 2));
  cache.endList();
  cache.beginList();
  cache.listed(at(1, 1));
  cache.beginList();
  cache.listed(at(1, 1));
  cache.listed(at(1, 2));
  cache.endList();
  assert.deepEqual(sink.take("services"), ["add default/svc-1", "add default/svc-2"]);
});

test("an object that goes bad keeps its last good version, is told of once per version, and recovers", () => {
  const { sink, log, cache } = setUp();
  cache.changed(at(1, 1));
  const bad = at(2, 1, { ports: [{ port: 99_999, protocol: "TCP" }] });
  assert.deepEqual(cache.changed(bad), { key: "default/svc-1", resourceVersion: "2" });
  cache.beginList();
  cache.listed(bad);
  cache.endList();
  assert.deepEqual(sink.keys("services"), ["default/svc-1"]);
  assert.equal(log.errors().length, 1);
  assert.match(log.errors()[0] ?? "", /spec\.ports\[0\]\.port must be .*99999: its last good version stays in use/);
  assert.equal(log.lines[0]?.facts.object, "Service default/svc-1");
  cache.changed(at(3, 1, { type: "NodePort" }));
  assert.deepEqual(sink.take("services"), ["add default/svc-1", "update default/svc-1"]);
});

test("a bad object that goes away is deleted like any other", () => {
  const { sink, cache } = setUp();
  cache.changed(at(1, 1));
  cache.changed(at(2, 1, { ports: "none" }));
  cache.deleted({ metadata: { namespace: "default", name: "svc-1" } });
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
    { metadata: { name: "A b", namespace: "c" } },
  ]) {
    assert.equal(cache.listed(raw), false);
    assert.equal(cache.changed(raw), undefined);
    assert.equal(cache.deleted(raw), undefined);
  }
  assert.deepEqual(sink.take("services"), []);
});

test("an object too large to be parsed is known by the beginning of its text, as the API server writes it", () => {
  const meta = (fields: object) =>
    JSON.stringify({ type: "MODIFIED", object: { kind: "X", metadata: fields, spec: {} } });
  const uid = "ddab-1";
  assert.deepEqual(identityInText(meta({ name: "a", namespace: "n", uid, resourceVersion: "5" }), true), {
    key: "n/a",
    resourceVersion: "5",
  });
  assert.deepEqual(
    identityInText(meta({ name: "a", generateName: "a-", namespace: "n", uid, resourceVersion: "5" }), true)?.key,
    "n/a",
  );
  assert.equal(identityInText(meta({ name: "a", uid, resourceVersion: "5" }), false)?.resourceVersion, "5");
  assert.equal(identityInText(meta({ name: "a", uid, resourceVersion: "5" }), true), undefined);
  assert.equal(identityInText(meta({ labels: {} }), true), undefined);
});

test("a slice whose content changed under the same name is an update with the old record", () => {
  const { sink, slices } = setUp();
  const version = (resourceVersion: string, generation: number) => {
    const object = slice(1, 2, generation);
    return { ...object, metadata: { ...object.metadata, resourceVersion } };
  };
  slices.changed(version("1", 0));
  slices.changed(version("2", 1));
  assert.deepEqual(sink.take("endpointSlices"), ["add default/svc-1-abcde", "update default/svc-1-abcde"]);
});

test("redelivery tells every object once, and stops at a turn when told to", async () => {
  const { sink, cache } = setUp();
  for (let index = 0; index < 1_200; index++) cache.changed(at(1, index));
  sink.take("services");
  await cache.redeliver(new AbortController().signal);
  const events = sink.take("services");
  assert.equal(events.length, 1_200);
  assert.ok(events.every((event) => event.startsWith("update ")));
  await cache.redeliver(AbortSignal.abort());
  assert.equal(sink.take("services").length, 500);
});
