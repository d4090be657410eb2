import assert from "node:assert/strict";
import { test } from "node:test";
import type { EndpointSliceRecord } from "../../../model/objects.ts";
import type { ManifestObject } from "./manifest-objects.ts";
import { deliver, NO_RECORDS, recordsOf } from "./merge.ts";
import { RecordingSink } from "./testing/manifest-bench.ts";

function defined(record: EndpointSliceRecord): ManifestObject {
  return {
    ...{
      id: "EndpointSlice/default/web-1",
      title: "EndpointSlice default/web-1",
      file: "a.json",
      document: 1,
      line: 1,
    },
    found: { kind: "endpointSlices", record },
  };
}

function slice(name: string): EndpointSliceRecord {
  return {
    ...{ namespace: "default", name, serviceName: "web", addressType: "IPv4", ports: [], endpoints: [] },
    ...{ lastChangeTriggerTime: "", resourceVersion: "digest" },
  };
}

test("the endpoints of a slice whose digest is the same are not compared", () => {
  const sink = new RecordingSink();
  const known = deliver(NO_RECORDS, recordsOf([defined(slice("web-1"))]), sink);
  const again = {
    ...slice("web-1"),
    get endpoints(): never {
      return assert.fail("hundreds of them, of every slice, for each file that changes");
    },
  };
  assert.deepEqual(deliver(known, recordsOf([defined(again)]), sink), known);
  assert.deepEqual(sink.events, ["add endpointSlices/default/web-1"]);
});
