/**
 * The interface of the two sources of cluster objects: a folder of manifests and the API server. Sources also apply the
 * server-side selectors of reference services.md §1, so a Service that stops matching arrives as a delete.
 */
import type { EndpointSliceRecord, NodeRecord, ServiceCidrRecord, ServiceRecord } from "./objects.ts";

/** A change of one object. `old` is the previously delivered record of the same object. */
export type ObjectEvent<T> =
  | { readonly kind: "add"; readonly object: T }
  | { readonly kind: "update"; readonly old: T; readonly object: T }
  | { readonly kind: "delete"; readonly object: T };

/** The watched resources. */
export interface ObjectKinds {
  readonly services: ServiceRecord;
  readonly endpointSlices: EndpointSliceRecord;
  readonly serviceCIDRs: ServiceCidrRecord;
  readonly nodes: NodeRecord;
}

export type ObjectKind = keyof ObjectKinds;

/**
 * Receives the events of a source. Calls are synchronous, and in order within a kind; `onSynced(kind)` is called once
 * per kind, after all its initial objects were delivered.
 */
export interface ObjectSink {
  onEvent<K extends ObjectKind>(kind: K, event: ObjectEvent<ObjectKinds[K]>): void;
  onSynced(kind: ObjectKind): void;
  /** A new or changed object of a Service (`namespace/name`) has an annotation with an invalid value, which does not count. */
  onMisread?(service: string, problem: string): void;
}

/** A stream of cluster objects. */
export interface ObjectSource {
  /**
   * Delivers the current objects and then every change until the signal aborts. Resolves when aborted; rejects only if
   * the source can never work (for example, the folder does not exist at the start). A temporary loss of the source is
   * not an error: the source logs it, retries, and does not invent deletes.
   */
  run(sink: ObjectSink, signal: AbortSignal): Promise<void>;
}
