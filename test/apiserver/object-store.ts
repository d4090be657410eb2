/**
 * Stands in for etcd and the watch caches: objects with resource versions from one counter, and for each resource the
 * bounded history of changes that serves watches. A restart empties the history.
 */
import type { Plural } from "./resource-types.ts";

/** An object as written by clients; the store sets `metadata.resourceVersion`. */
export interface ApiObject {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly [field: string]: unknown;
  };
  readonly [field: string]: unknown;
}

export interface StoredObject extends ApiObject {
  readonly metadata: ApiObject["metadata"] & { readonly resourceVersion: string; readonly uid: string };
}

/** A version of an object, with its JSON text made once for all readers. */
export interface StoredVersion {
  readonly object: StoredObject;
  readonly json: string;
}

/** A change. `before` is undefined for a creation, `after` for a deletion. */
export interface StoredChange {
  readonly plural: Plural;
  readonly version: number;
  readonly before: StoredVersion | undefined;
  readonly after: StoredVersion | undefined;
}

export type ChangeListener = (change: StoredChange) => void;

export class ObjectStore {
  readonly #objects = new Map<Plural, Map<string, StoredVersion>>();
  readonly #listeners = new Set<ChangeListener>();
  #history: StoredChange[] = [];
  #version = 100;
  #uid = 0;
  /** The first version of each watch cache. */
  #startVersion = 100;
  /** For each resource that has changed since then, the oldest version that its watches can start at. */
  readonly #oldest = new Map<Plural, number>();
  /** Writes an object as JSON; tests write it otherwise. */
  jsonOf: (object: StoredObject) => string = (object) => JSON.stringify(object);

  /** The newest resource version. */
  get version(): number {
    return this.#version;
  }

  /** The oldest version that watches can start at; lists can start at any. */
  oldestVersion(plural: Plural): number {
    return this.#oldest.get(plural) ?? this.#startVersion;
  }

  /** Whether the resource has changed since the last restart. A watch cache without changes sends no bookmarks. */
  hasChanged(plural: Plural): boolean {
    return this.#oldest.has(plural);
  }

  objects(plural: Plural): ReadonlyMap<string, StoredVersion> {
    return this.#of(plural);
  }

  /** Creates or replaces the object of that name. */
  put(plural: Plural, object: ApiObject): StoredObject {
    const key = keyOf(object);
    const before = this.#of(plural).get(key);
    const uid = before?.object.metadata.uid ?? `uid-${++this.#uid}`;
    const version = ++this.#version;
    const { name, namespace, ...more } = object.metadata;
    // In the field order of the real server.
    const names = namespace === undefined ? { name } : { name, namespace };
    const own = { uid, resourceVersion: String(version) };
    const stored = { ...object, metadata: Object.assign({ ...names, ...own }, more, own) };
    const after = { object: stored, json: this.jsonOf(stored) };
    this.#of(plural).set(key, after);
    this.#record({ plural, version, before, after });
    return stored;
  }

  /** Deletes an object, if it exists. @returns whether it existed. */
  delete(plural: Plural, key: string): boolean {
    const before = this.#of(plural).get(key);
    if (before === undefined) return false;
    this.#of(plural).delete(key);
    this.#record({ plural, version: ++this.#version, before, after: undefined });
    return true;
  }

  /** Changes after a version, oldest first; `undefined` if they are no longer in the history. */
  changesSince(plural: Plural, version: number): readonly StoredChange[] | undefined {
    if (version < this.oldestVersion(plural)) return undefined;
    return this.#history.filter((change) => change.plural === plural && change.version > version);
  }

  /**
   * Drops the history: watches of changed resources cannot resume from any earlier version. A resource without changes
   * keeps its start version, as in a real watch cache.
   */
  compact(): void {
    this.#history = [];
    this.#version += 1;
    for (const plural of this.#oldest.keys()) this.#oldest.set(plural, this.#version);
  }

  /**
   * Simulates a server restart: drops the history of all resources, including those without changes, and advances the
   * counter, because node leases and other objects were written in the meantime.
   */
  restart(): void {
    this.#version += 1;
    this.#begin();
  }

  /** Moves the counter back, as a restored backup does; the objects stay. */
  rewind(versions: number): void {
    this.#version -= versions;
    this.#begin();
  }

  /** Calls the listener for each later change. @returns the unsubscribe function. */
  subscribe(listener: ChangeListener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  #begin(): void {
    this.#history = [];
    this.#startVersion = this.#version;
    this.#oldest.clear();
  }

  #of(plural: Plural): Map<string, StoredVersion> {
    const known = this.#objects.get(plural) ?? new Map<string, StoredVersion>();
    this.#objects.set(plural, known);
    return known;
  }

  #record(change: StoredChange): void {
    this.#history.push(change);
    if (!this.hasChanged(change.plural)) this.#oldest.set(change.plural, this.#startVersion);
    for (const listener of this.#listeners) listener(change);
  }
}

/** `namespace/name`, or the name. */
export function keyOf({ metadata: { namespace, name } }: ApiObject): string {
  return namespace === undefined ? name : `${namespace}/${name}`;
}
