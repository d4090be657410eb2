/**
 * Where cluster objects come from. Two sources exist: a folder of manifests and the API server. A source applies the
 * server-side selectors of reference services.md §1 itself, so a Service that stops matching arrives as a delete.
 */
import type { EndpointSliceRecord, NodeRecord, ServiceCidrRecord, ServiceRecord } from "./objects.ts";

/** A change of one object. `old` is the record delivered before for the same object. */
export type ObjectEvent<T> =
  | { readonly kind: "add"; readonly object: T }
  | { readonly kind: "update"; readonly old: T; readonly object: T }
  | { readonly kind: "delete"; readonly object: T };

/** The resources that are watched. */
export interface ObjectKinds {
  readonly services: ServiceRecord;
  readonly endpointSlices: EndpointSliceRecord;
  readonly serviceCIDRs: ServiceCidrRecord;
  readonly nodes: NodeRecord;
}

export type ObjectKind = keyof ObjectKinds;

/**
 * Receives the events of a source. Calls are synchronous and in order for one kind; `onSynced(kind)` is called exactly
 * once per kind, after its initial objects have all been handed over.
 */
export interface ObjectSink {
  onEvent<K extends ObjectKind>(kind: K, event: ObjectEvent<ObjectKinds[K]>): void;
  onSynced(kind: ObjectKind): void;
}

/** A stream of cluster objects. */
export interface ObjectSource {
  /**
   * Delivers the current objects and then every change until the signal aborts. Resolves when aborted; rejects only
   * when the source can never work (for example the folder does not exist at start). Losing the source for a while
   * is not an error: it is logged, retried, and no delete is made up.
   */
  run(sink: ObjectSink, signal: AbortSignal): Promise<void>;
}
