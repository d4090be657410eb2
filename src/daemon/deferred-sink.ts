/**
 * Holds back what a source delivers until its receivers exist. Node objects go through at once, for they decide how the
 * receivers are built. It holds state, not events, so it does not grow however long that takes.
 */
import type { ObjectEvent, ObjectKind, ObjectKinds, ObjectSink } from "../cluster/object-source.ts";
import { recordKey } from "../cluster/objects.ts";
import type { NodeSink } from "../sync/dual-stack.ts";

/** The order of handing over: first what decides how the rest is read. */
const KINDS: readonly ObjectKind[] = ["nodes", "serviceCIDRs", "services", "endpointSlices"];

export class DeferredSink implements ObjectSink {
  readonly #early: readonly NodeSink[];
  readonly #held: { readonly [K in ObjectKind]: HeldKind } = {
    nodes: new HeldKind(),
    serviceCIDRs: new HeldKind(),
    services: new HeldKind(),
    endpointSlices: new HeldKind(),
  };
  #sink: ObjectSink | undefined;

  /** @param early receive Node objects from the start. They are also held back for the later sink. */
  constructor(early: readonly NodeSink[]) {
    this.#early = early;
  }

  onEvent<K extends ObjectKind>(kind: K, event: ObjectEvent<ObjectKinds[K]>): void {
    if (kind === "nodes") {
      const nodeEvent = event as ObjectEvent<ObjectKinds["nodes"]>; // K is "nodes" here
      for (const sink of this.#early) sink.onEvent(nodeEvent);
    }
    if (this.#sink === undefined) this.#held[kind].take(kind, event);
    else this.#sink.onEvent(kind, event);
  }

  onSynced(kind: ObjectKind): void {
    if (kind === "nodes") for (const sink of this.#early) sink.onSynced();
    if (this.#sink === undefined) this.#held[kind].isSynced = true;
    else this.#sink.onSynced(kind);
  }

  /** Hands over every existing object as an addition, and from then on each event as it comes. Call once. */
  attach(sink: ObjectSink): void {
    this.#sink = sink;
    for (const kind of KINDS) {
      this.#held[kind].handOver(sink);
      if (this.#held[kind].isSynced) sink.onSynced(kind);
    }
  }
}

/** The objects of one kind. */
class HeldKind {
  isSynced = false;
  /** By name, how to add the object: an event of its own kind, which a list of several kinds could not have. */
  readonly #additions = new Map<string, (sink: ObjectSink) => void>();

  take<K extends ObjectKind>(kind: K, { kind: change, object }: ObjectEvent<ObjectKinds[K]>): void {
    const key = recordKey(object);
    if (change === "delete") this.#additions.delete(key);
    else this.#additions.set(key, (sink) => sink.onEvent(kind, { kind: "add", object }));
  }

  handOver(sink: ObjectSink): void {
    for (const add of this.#additions.values()) add(sink);
    this.#additions.clear();
  }
}
