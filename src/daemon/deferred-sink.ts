/**
 * Holds back what a source delivers until its receivers exist. Node objects pass at once, because they decide how the
 * receivers are built. It holds state, not events, so it does not grow while it waits.
 */
import type { ObjectEvent, ObjectKind, ObjectKinds, ObjectSink } from "../cluster/object-source.ts";
import { recordKey } from "../cluster/objects.ts";
import type { NodeSink } from "../sync/dual-stack.ts";

/** Delivery order: first what decides how the rest is read. */
const KINDS: readonly ObjectKind[] = ["nodes", "serviceCIDRs", "services", "endpointSlices"];

export class DeferredSink implements ObjectSink {
  readonly #early: readonly NodeSink[];
  readonly onMisread: NonNullable<ObjectSink["onMisread"]>;
  /** By kind and name, how to add the object: an event of its own kind, which a list of several kinds could not hold. */
  readonly #additions = new Map(KINDS.map((kind) => [kind, new Map<string, (sink: ObjectSink) => void>()]));
  readonly #synced = new Set<ObjectKind>();
  #sink: ObjectSink | undefined;

  /** @param early sinks for Node objects from the start. Node objects are also held back for the later sink. */
  constructor(early: readonly NodeSink[], onMisread: NonNullable<ObjectSink["onMisread"]> = () => {}) {
    this.#early = early;
    this.onMisread = onMisread;
  }

  onEvent<K extends ObjectKind>(kind: K, event: ObjectEvent<ObjectKinds[K]>): void {
    if (kind === "nodes") {
      const nodeEvent = event as ObjectEvent<ObjectKinds["nodes"]>; // K is "nodes" here
      for (const sink of this.#early) sink.onEvent(nodeEvent);
    }
    if (this.#sink === undefined) this.#hold(kind, event);
    else this.#sink.onEvent(kind, event);
  }

  #hold<K extends ObjectKind>(kind: K, { kind: change, object }: ObjectEvent<ObjectKinds[K]>): void {
    const key = recordKey(object);
    const additions = this.#additions.get(kind);
    if (change === "delete") additions?.delete(key);
    else additions?.set(key, (sink) => sink.onEvent(kind, { kind: "add", object }));
  }

  onSynced(kind: ObjectKind): void {
    if (kind === "nodes") for (const sink of this.#early) sink.onSynced();
    if (this.#sink === undefined) this.#synced.add(kind);
    else this.#sink.onSynced(kind);
  }

  /** Delivers every existing object as an addition, and from then on each event as it comes. Call once. */
  attach(sink: ObjectSink): void {
    this.#sink = sink;
    for (const kind of KINDS) {
      for (const add of this.#additions.get(kind)?.values() ?? []) add(sink);
      this.#additions.delete(kind);
      if (this.#synced.has(kind)) sink.onSynced(kind);
    }
  }
}
