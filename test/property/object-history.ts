/** The Services and slices of a source during a history: turns writes and deletes into events. */
import type { ObjectEvent } from "../../src/model/object-source.ts";
import { type EndpointSliceRecord, objectKeyText, type ServiceRecord } from "../../src/model/objects.ts";
import type { ProxyState } from "../../src/model/proxy-state.ts";
import type { Step } from "./cluster-arbitrary.ts";

/** A step that writes or deletes an object. */
export type ObjectStep = Extract<Step, { kind: "write-service" | "delete-service" | "write-slice" | "delete-slice" }>;

/** Turns writes and deletes into a source's events. */
export class Objects<T extends { readonly namespace: string; readonly name: string }> {
  readonly byKey = new Map<string, T>();

  write(object: T): ObjectEvent<T> {
    const key = objectKeyText(object);
    const old = this.byKey.get(key);
    this.byKey.set(key, object);
    return old === undefined ? { kind: "add", object } : { kind: "update", old, object };
  }

  deleteAt(index: number): ObjectEvent<T> | undefined {
    const keys = [...this.byKey.keys()];
    const key = keys[index % keys.length];
    const object = key === undefined ? undefined : this.byKey.get(key);
    if (key === undefined || object === undefined) return undefined;
    this.byKey.delete(key);
    return { kind: "delete", object };
  }
}

export class ObjectHistory {
  readonly services = new Objects<ServiceRecord>();
  readonly slices = new Objects<EndpointSliceRecord>();

  /** Applies the step and notifies the model; ignores the deletion of a missing object. */
  apply(step: ObjectStep, state: ProxyState): void {
    switch (step.kind) {
      case "write-service":
        state.onService(this.services.write(step.object));
        return;
      case "delete-service": {
        const event = this.services.deleteAt(step.index);
        if (event !== undefined) state.onService(event);
        return;
      }
      case "write-slice":
        state.onEndpointSlice(this.slices.write(step.object));
        return;
      case "delete-slice": {
        const event = this.slices.deleteAt(step.index);
        if (event !== undefined) state.onEndpointSlice(event);
      }
    }
  }
}
