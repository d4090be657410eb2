import assert from "node:assert/strict";
import { test } from "node:test";
import { slice } from "../../../../../test/apiserver/example-objects.ts";
import { RecordingSink } from "../../../../../test/apiserver/recording-sink.ts";
import { recordingLog } from "../testing/recording-log.ts";
import { ObjectCache } from "./object-cache.ts";
import { CLUSTER_RESOURCES } from "./resources.ts";

const [, endpointSlices] = CLUSTER_RESOURCES;

for (const isVerbose of [false, true]) {
  test(`slices of which parts are left out are ${isVerbose ? "named where that is asked for" : "no reason to complain"}`, () => {
    const recording = recordingLog();
    const log = { ...recording, isVerbose: () => isVerbose };
    const sink = new RecordingSink();
    const cache = new ObjectCache(endpointSlices, sink, log);
    for (let index = 0; index < 50; index++) cache.take("changed", { ...slice(index), ports: [{ port: 0 }] });
    assert.equal(sink.state.endpointSlices.size, 50);
    assert.deepEqual(recording.complaints(), []);
    assert.equal(recording.lines.length, isVerbose ? 50 : 0);
  });
}

test("the Service of an object hears once for each version that an annotation of it does not count", () => {
  const told: string[] = [];
  const sink = Object.assign(new RecordingSink(), {
    onMisread: (service: string, problem: string) => told.push(`${service}: ${problem}`),
  });
  const cache = new ObjectCache(endpointSlices, sink, recordingLog());
  const of = (weight: string) => {
    const { metadata, ...rest } = slice(1);
    return { ...rest, metadata: { ...metadata, annotations: { "kube-proxy-ts/weight": weight } } };
  };
  cache.take("changed", of("heavy"));
  cache.beginList();
  cache.take("listed", of("heavy"));
  cache.endList();
  cache.take("changed", of("3"));
  assert.equal(told.length, 1);
  assert.match(told[0] ?? "", /^[^:]+\/[^:]+: EndpointSlice .*kube-proxy-ts\/weight.*got "heavy"$/);
});
