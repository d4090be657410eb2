/**
 * What etcd and the watch caches are to a real API server: objects with resource versions from one counter, and for each
 * resource the history of changes that watches are served from. A restart empties it; what fills it pushes old changes out.
 */
import type { Plural } from "./resource-types.ts";

/** An object as clients write it; the store sets `metadata.resourceVersion`. */
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

/** A version of an object with its JSON text, made once for all readers. */
export interface StoredVersion {
  readonly object: StoredObject;
  readonly json: string;
}

/** One change. `before` is undefined for a creation, `after` for a deletion. */
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
  /** What each watch cache began with. */
  #startVersion = 100;
  /** Resources that have changed since then, and the version that watches of them can start at. */
  readonly #oldest = new Map<Plural, number>();

  /** The newest resource version of all. */
  get version(): number {
    return this.#version;
  }

  /** Watches can start at this version, lists at any. */
  oldestVersion(plural: Plural): number {
    return this.#oldest.get(plural) ?? this.#startVersion;
  }

  /** Whether anything has happened to the resource since the last restart. A watch cache that has seen nothing sends no bookmarks. */
  hasChanged(plural: Plural): boolean {
    return this.#oldest.has(plural);
  }

  objects(plural: Plural): ReadonlyMap<string, StoredVersion> {
    return this.#of(plural);
  }

  /** Creates or replaces; the name decides. */
  put(plural: Plural, object: ApiObject): StoredObject {
    const key = keyOf(object);
    const before = this.#of(plural).get(key);
    const uid = before?.object.metadata.uid ?? `uid-${++this.#uid}`;
    const version = ++this.#version;
    const { name, namespace, ...more } = object.metadata;
    // In the order of the real server's text.
    const names = namespace === undefined ? { name } : { name, namespace };
    const own = { uid, resourceVersion: String(version) };
    const stored = { ...object, metadata: Object.assign({ ...names, ...own }, more, own) };
    const after = { object: stored, json: JSON.stringify(stored) };
    this.#of(plural).set(key, after);
    this.#record({ plural, version, before, after });
    return stored;
  }

  /** Deletes; an object that is not there is left so. @returns whether it was there. */
  delete(plural: Plural, key: string): boolean {
    const before = this.#of(plural).get(key);
    if (before === undefined) return false;
    this.#of(plural).delete(key);
    this.#record({ plural, version: ++this.#version, before, after: undefined });
    return true;
  }

  /** Changes after a version, oldest first; `undefined` when they have been forgotten. */
  changesSince(plural: Plural, version: number): readonly StoredChange[] | undefined {
    if (version < this.oldestVersion(plural)) return undefined;
    return this.#history.filter((change) => change.plural === plural && change.version > version);
  }

  /**
   * Forgets the changes so far: watches of what has changed cannot resume from any version before now. A resource that has
   * not keeps its place, as in a real watch cache.
   */
  compact(): void {
    this.#history = [];
    this.#version += 1;
    for (const plural of this.#oldest.keys()) this.#oldest.set(plural, this.#version);
  }

  /**
   * Begins again, as a server that was restarted: all history is gone, of resources without changes, too, and the counter
   * has moved, for the nodes' leases and much else were written meanwhile.
   */
  restart(): void {
    this.#version += 1;
    this.#begin();
  }

  /** Takes the counter back, as a restored backup does; the objects stay. */
  rewind(versions: number): void {
    this.#version -= versions;
    this.#begin();
  }

  /** Calls the listener for each change from now on. @returns what ends it. */
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

/** `namespace/name`, or the name. Pure. */
export function keyOf({ metadata: { namespace, name } }: ApiObject): string {
  return namespace === undefined ? name : `${namespace}/${name}`;
}
