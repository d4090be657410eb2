/**
 * Holds back what a source delivers until its receivers exist. Node objects go through at once, for they decide how the
 * receivers are built.
 */
import type { ObjectEvent, ObjectKind, ObjectKinds, ObjectSink } from "../cluster/object-source.ts";
import type { NodeSink } from "../sync/dual-stack.ts";

export class DeferredSink implements ObjectSink {
  readonly #early: readonly NodeSink[];
  #held: ((sink: ObjectSink) => void)[] = [];
  #sink: ObjectSink | undefined;
  readonly #attached = Promise.withResolvers<void>();

  /** @param early told of Node objects from the start. They are also held back for the later sink. */
  constructor(early: readonly NodeSink[]) {
    this.#early = early;
  }

  onEvent<K extends ObjectKind>(kind: K, event: ObjectEvent<ObjectKinds[K]>): void {
    if (kind === "nodes") {
      const nodeEvent = event as ObjectEvent<ObjectKinds["nodes"]>; // K is "nodes" here
      for (const sink of this.#early) sink.onEvent(nodeEvent);
    }
    this.#pass((sink) => sink.onEvent(kind, event));
  }

  onSynced(kind: ObjectKind): void {
    if (kind === "nodes") for (const sink of this.#early) sink.onSynced();
    this.#pass((sink) => sink.onSynced(kind));
  }

  /** Resolves when the later sink is there: a source that can wait until then saves holding everything back. */
  get attached(): Promise<void> {
    return this.#attached.promise;
  }

  /** Hands over everything held back, in order, and from now on each event as it comes. Call once. */
  attach(sink: ObjectSink): void {
    this.#sink = sink;
    const held = this.#held;
    this.#held = [];
    for (const call of held) call(sink);
    this.#attached.resolve();
  }

  #pass(call: (sink: ObjectSink) => void): void {
    if (this.#sink === undefined) this.#held.push(call);
    else call(this.#sink);
  }
}
