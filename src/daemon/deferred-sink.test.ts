import assert from "node:assert/strict";
import { test } from "node:test";
import type { ObjectSink } from "../cluster/object-source.ts";
import type { NodeRecord } from "../cluster/objects.ts";
import { makeService } from "../model/testing/records.ts";
import type { NodeSink } from "../sync/dual-stack.ts";
import { DeferredSink } from "./deferred-sink.ts";

const node: NodeRecord = {
  name: "node-a",
  uid: "",
  zone: undefined,
  addresses: [],
  podCIDRs: [],
  taintKeys: [],
  isBeingDeleted: false,
};
const service = makeService();

function recorder() {
  const seen: string[] = [];
  const sink: ObjectSink = {
    onEvent: (kind, event) => void seen.push(`${kind} ${event.kind} ${event.object.name}`),
    onSynced: (kind) => void seen.push(`${kind} synced`),
  };
  const early: NodeSink = {
    onEvent: (event) => void seen.push(`early ${event.kind} ${event.object.name}`),
    onSynced: () => void seen.push("early synced"),
  };
  return { seen, sink, early };
}

test("nodes go through at once; the rest is handed over when there is a receiver, nodes first", () => {
  const { seen, sink, early } = recorder();
  const deferred = new DeferredSink([early]);
  deferred.onEvent("services", { kind: "add", object: service });
  deferred.onEvent("nodes", { kind: "add", object: node });
  deferred.onSynced("services");
  deferred.onSynced("nodes");
  assert.deepEqual(seen, ["early add node-a", "early synced"]);
  seen.length = 0;
  deferred.attach(sink);
  assert.deepEqual(seen, ["nodes add node-a", "nodes synced", "services add svc1", "services synced"]);
});

test("what changes before there is a receiver is handed over as it is then", () => {
  const { seen, early } = recorder();
  const deferred = new DeferredSink([early]);
  const ports = [{ name: "", protocol: "TCP", port: 1, nodePort: 0 }] as const;
  const changed = makeService({ ports });
  const other = makeService({ name: "other" });
  deferred.onEvent("services", { kind: "add", object: service });
  deferred.onEvent("services", { kind: "add", object: other });
  deferred.onEvent("services", { kind: "update", old: service, object: changed });
  deferred.onEvent("services", { kind: "delete", object: other });
  const delivered: unknown[] = [];
  deferred.attach({ onEvent: (_kind, event) => void delivered.push(event), onSynced: (kind) => void seen.push(kind) });
  assert.deepEqual(delivered, [{ kind: "add", object: changed }]);
  assert.deepEqual(seen, []);
});

test("afterwards everything goes through at once, nodes to both", () => {
  const { seen, sink, early } = recorder();
  const deferred = new DeferredSink([early]);
  deferred.attach(sink);
  deferred.onEvent("services", { kind: "delete", object: service });
  deferred.onEvent("nodes", { kind: "update", old: node, object: node });
  deferred.onSynced("endpointSlices");
  assert.deepEqual(seen, [
    "services delete svc1",
    "early update node-a",
    "nodes update node-a",
    "endpointSlices synced",
  ]);
});
