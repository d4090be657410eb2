/** An address that now leads to another cluster, or to one restored from a backup, which may use the same versions. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { service, slice } from "../../../../../test/apiserver/example-objects.ts";
import { RecordingSink } from "../../../../../test/apiserver/recording-sink.ts";
import { recordingLog } from "../testing/recording-log.ts";
import { ObjectCache } from "./object-cache.ts";
import { CLUSTER_RESOURCES } from "./resources.ts";

const [services, endpointSlices] = CLUSTER_RESOURCES;
const versioned = <T extends { readonly metadata: object }>(object: T) => ({
  ...object,
  metadata: { ...object.metadata, resourceVersion: "243" },
});

test("an object of a list counts as it is, also with the version of what was known under its name", () => {
  const sink = new RecordingSink();
  const log = recordingLog();
  const cache = new ObjectCache(services, sink, log);
  const slices = new ObjectCache(endpointSlices, sink, log);
  const list = (spec: object, endpoints: readonly object[]): void => {
    cache.beginList();
    cache.take("listed", versioned(service(1, { ...spec })));
    cache.endList();
    slices.beginList();
    slices.take("listed", versioned({ ...slice(1), endpoints }));
    slices.endList();
  };
  list({}, [{ addresses: ["10.1.0.1"] }]);
  sink.take("services");
  sink.take("endpointSlices");
  list({}, [{ addresses: ["10.1.0.1"] }]);
  assert.deepEqual([...sink.take("services"), ...sink.take("endpointSlices")], []);
  list({ type: "NodePort" }, [{ addresses: ["10.1.0.2"] }]);
  assert.deepEqual(sink.take("services"), ["update default/svc-1"]);
  assert.equal(sink.take("endpointSlices").length, 1);
});
