/**
 * The delivered objects of one resource. Turns lists and watch events into a minimal set of additions, updates and
 * deletions. Holds projected records only.
 */

import { isDeepStrictEqual } from "../../../../async/node-util.ts";
import type { Logger } from "../../../../logging/logger.ts";
import type { ObjectKind, ObjectKinds, ObjectSink } from "../../../../model/object-source.ts";
import { isJsonObject } from "../../../../model/projection/fields.ts";
import { describeValue, type FieldProblem, formatProblem } from "../../../../model/projection/findings.ts";
import { DNS_LABEL_RULE, DNS_SUBDOMAIN_RULE, isDnsLabel, isDnsSubdomain } from "../../../../model/projection/names.ts";
import { flatText } from "../../../../net/compact.ts";
import type { WatchedResource } from "./resources.ts";

interface Entry<T> {
  record: T;
  /** The last list that contained the object. */
  generation: number;
}

/** The identity of a raw object. */
interface ObjectIdentity {
  /** `namespace/name`, or the name. */
  readonly key: string;
  /** Empty if it has none. */
  readonly resourceVersion: string;
  /** Why the name is invalid for any object of a cluster. */
  readonly nameProblem?: string;
}

/** A refusal is logged once per object; with more objects than this, it may be logged again. */
const MAX_REMEMBERED_REFUSALS = 1_000;
const EVENTS_PER_TURN = 500;

export class ObjectCache<K extends ObjectKind> {
  readonly #resource: WatchedResource<K>;
  readonly #sink: ObjectSink;
  readonly #log: Logger;
  readonly #entries = new Map<string, Entry<ObjectKinds[K]>>();
  /** Key → resource version whose refusal was logged. */
  readonly #refusals = new Map<string, string>();
  #generation = 0;

  constructor(resource: WatchedResource<K>, sink: ObjectSink, log: Logger) {
    this.#resource = resource;
    this.#sink = sink;
    this.#log = log;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** @param key `namespace/name`, or the name. */
  record(key: string): ObjectKinds[K] | undefined {
    return this.#entries.get(key)?.record;
  }

  /** Begins a list; discards one that was not ended. */
  beginList(): void {
    this.#generation++;
  }

  /** Ends a complete list: deletes the objects that it did not contain. */
  endList(): void {
    for (const [key, entry] of this.#entries) {
      if (entry.generation !== this.#generation) this.#remove(key, entry);
    }
  }

  /**
   * Applies an object from the running list or from a watch event.
   *
   * @returns its resource version, empty if it has none; undefined if it cannot be identified and was ignored.
   */
  take(how: "listed" | "changed" | "deleted", raw: unknown): string | undefined {
    const identity = identityOf(raw, this.#resource.isNamespaced);
    if (identity === undefined) return undefined;
    const { key, resourceVersion } = identity;
    const entry = this.#entries.get(key);
    if (how === "deleted") {
      this.#refusals.delete(key);
      if (entry !== undefined) this.#remove(key, entry);
    } else this.#put(raw, identity, entry, how === "listed");
    return resourceVersion;
  }

  /** Delivers every object again as an update to itself, yielding to the event loop in between. */
  async redeliver(signal: AbortSignal): Promise<void> {
    let count = 0;
    for (const { record } of this.#entries.values()) {
      this.#sink.onEvent(this.#resource.kind, { kind: "update", old: record, object: record });
      if (++count % EVENTS_PER_TURN > 0) continue;
      await new Promise<void>((resolve) => {
        setImmediate(resolve);
      });
      if (signal.aborted) return;
    }
  }

  #put(raw: unknown, identity: ObjectIdentity, entry: Entry<ObjectKinds[K]> | undefined, isListed: boolean): void {
    const { kind, isSelected, project, keepsPods } = this.#resource;
    const { key, nameProblem } = identity;
    if (nameProblem !== undefined) {
      this.#complain(identity, nameProblem, false);
      return;
    }
    if (!isSelected(raw)) {
      if (entry !== undefined) this.#remove(key, entry);
      return;
    }
    if (entry !== undefined) entry.generation = this.#generation;
    const projection = project(raw, undefined, keepsPods, entry?.record);
    if (!projection.ok) {
      this.#complain(identity, problemsText(projection.problems), entry !== undefined);
      return;
    }
    if (this.#refusals.size > 0) this.#refusals.delete(key);
    const { record, warnings } = projection;
    // An equal version proves nothing here: the address may now lead to another cluster, or to a restored backup.
    const isNews = entry === undefined || !isListed || !isDeepStrictEqual(record, entry.record);
    if (warnings.length > 0) this.#tellWarnings(key, record, warnings, isNews);
    if (!isNews) return;
    if (entry === undefined) {
      this.#entries.set(key, { record, generation: this.#generation });
      this.#sink.onEvent(kind, { kind: "add", object: record });
      return;
    }
    const old = entry.record;
    entry.record = record;
    this.#sink.onEvent(kind, { kind: "update", old, object: record });
  }

  /** @param isNews the object is not as it was. */
  #tellWarnings(key: string, record: ObjectKinds[K], warnings: readonly FieldProblem[], isNews: boolean): void {
    const object = `${this.#resource.title} ${key}`;
    if (this.#log.isVerbose(2)) {
      this.#log.v(2, "Left out parts of an object", { object, reason: problemsText(warnings) });
    }
    if (!isNews) return;
    const annotations = warnings.filter(({ field }) => field.startsWith("metadata.annotations"));
    if (annotations.length === 0) return;
    const service = "serviceName" in record ? flatText(record.namespace, "/", record.serviceName) : key;
    this.#sink.onMisread?.(service, `${object}: ${problemsText(annotations)}`);
  }

  #remove(key: string, entry: Entry<ObjectKinds[K]>): void {
    this.#entries.delete(key);
    this.#sink.onEvent(this.#resource.kind, { kind: "delete", object: entry.record });
  }

  #complain({ key, resourceVersion }: ObjectIdentity, reason: string, isKept: boolean): void {
    if (this.#refusals.get(key) === resourceVersion) return;
    if (this.#refusals.size >= MAX_REMEMBERED_REFUSALS) this.#refusals.clear();
    this.#refusals.set(key, resourceVersion);
    const outcome = isKept ? "its last good version stays in use" : "it is left out";
    const message = "Cannot use an object from the API server";
    this.#log.error(message, new Error(`${reason}: ${outcome}`), { object: `${this.#resource.title} ${key}` });
  }
}

/** The object's identity; `undefined` if it has no name. */
function identityOf(raw: unknown, isNamespaced: boolean): ObjectIdentity | undefined {
  if (!isJsonObject(raw) || !isJsonObject(raw.metadata)) return undefined;
  const { name, namespace = "", resourceVersion: version } = raw.metadata;
  if (typeof name !== "string" || name === "" || typeof namespace !== "string") return undefined;
  if (isNamespaced && namespace === "") return undefined;
  const resourceVersion = typeof version === "string" ? version : "";
  if (!isDnsSubdomain(name)) return misnamed(`metadata.name ${DNS_SUBDOMAIN_RULE}`, name, resourceVersion);
  if (!isNamespaced) return { key: name, resourceVersion };
  if (!isDnsLabel(namespace)) return misnamed(`metadata.namespace ${DNS_LABEL_RULE}`, namespace, resourceVersion);
  return { key: flatText(namespace, "/", name), resourceVersion };
}

function misnamed(nameProblem: string, name: string, resourceVersion: string): ObjectIdentity {
  return { key: describeValue(name), resourceVersion, nameProblem };
}

function problemsText(problems: readonly FieldProblem[]): string {
  return problems.map(formatProblem).join("; ");
}
