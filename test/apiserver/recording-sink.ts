/** An object sink that records the state and rejects contradictory events. */
import assert from "node:assert/strict";
import type { ObjectEvent, ObjectKind, ObjectKinds, ObjectSink } from "../../src/model/object-source.ts";

type AnyRecord = ObjectKinds[ObjectKind];

export class RecordingSink implements ObjectSink {
  /** `add default/svc-1`, in order, by kind. */
  readonly events: Record<ObjectKind, string[]> = { nodes: [], services: [], endpointSlices: [], serviceCIDRs: [] };
  readonly state: Record<ObjectKind, Map<string, AnyRecord>> = {
    nodes: new Map(),
    services: new Map(),
    endpointSlices: new Map(),
    serviceCIDRs: new Map(),
  };
  readonly synced: ObjectKind[] = [];

  onEvent<K extends ObjectKind>(kind: K, event: ObjectEvent<ObjectKinds[K]>): void {
    const { object } = event;
    const key = "namespace" in object ? `${object.namespace}/${object.name}` : object.name;
    const known = this.state[kind].get(key);
    if (event.kind === "add") assert.equal(known, undefined, `${kind} ${key} added twice`);
    if (event.kind === "update") assert.equal(event.old, known, `${kind} ${key} updated from something else`);
    if (event.kind === "delete") {
      assert.equal(object, known, `${kind} ${key} deleted, but what was delivered before was something else`);
      this.state[kind].delete(key);
    } else this.state[kind].set(key, object);
    this.events[kind].push(`${event.kind} ${key}`);
  }

  onSynced(kind: ObjectKind): void {
    assert.ok(!this.synced.includes(kind), `${kind} synced twice`);
    this.synced.push(kind);
  }

  /** The sorted keys of one kind. */
  keys(kind: ObjectKind): readonly string[] {
    return [...this.state[kind].keys()].sort();
  }

  /** The events of one kind since the last call. */
  take(kind: ObjectKind): readonly string[] {
    return this.events[kind].splice(0);
  }
}
