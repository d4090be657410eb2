/** One watch that a client has open at the test API server. */
import type { FaultyBody } from "./faults.ts";
import type { ObjectStore, StoredChange, StoredVersion } from "./object-store.ts";
import type { Plural, ResourceType } from "./resource-types.ts";
import type { Predicate } from "./selectors.ts";
import { type StatusOptions, statusObject } from "./status-object.ts";

export interface WatchStreamOptions {
  readonly store: ObjectStore;
  readonly type: ResourceType & { readonly plural: Plural };
  readonly isSelected: Predicate;
  readonly body: FaultyBody;
  readonly allowsBookmarks: boolean;
}

/** How often a watch gets a bookmark. */
const BOOKMARK_EVERY_MS = 60_000;

export class WatchStream {
  readonly #options: WatchStreamOptions;
  readonly #unsubscribe: () => void;
  readonly #bookmarks: NodeJS.Timeout;
  /** Events wait here while paused. */
  #held: string[] | undefined;
  #isOver = false;

  constructor(options: WatchStreamOptions) {
    this.#options = options;
    this.#unsubscribe = options.store.subscribe((change) => this.#onChange(change));
    this.#bookmarks = setInterval(() => this.sendBookmark(), BOOKMARK_EVERY_MS);
  }

  get plural(): Plural {
    return this.#options.type.plural;
  }

  /** Everything that is there, as additions. */
  sendInitial(): void {
    const { body, store, isSelected } = this.#options;
    body.inOnePiece(() => {
      for (const version of store.objects(this.plural).values()) {
        if (isSelected(version.object)) this.#sendObject("ADDED", version);
      }
    });
  }

  /** What happened after a version; the caller knows that it is not forgotten. */
  sendSince(changes: readonly StoredChange[]): void {
    for (const change of changes) this.#onChange(change);
  }

  /** Where the watch has come to. A real server says so only once the resource has changed. */
  sendBookmark(): void {
    if (this.#options.store.hasChanged(this.plural)) this.#sendBookmark();
  }

  /** That the objects so far were all that there are. */
  sendInitialEnd(): void {
    this.#sendBookmark({ "k8s.io/initial-events-end": "true" });
  }

  #sendBookmark(annotations?: Readonly<Record<string, string>>): void {
    if (!this.#options.allowsBookmarks) return;
    const resourceVersion = String(this.#options.store.version);
    const metadata = {
      resourceVersion,
      creationTimestamp: null,
      ...(annotations === undefined ? {} : { annotations }),
    };
    const { kind, apiVersion } = this.#options.type;
    this.#send(JSON.stringify({ type: "BOOKMARK", object: { kind, apiVersion, metadata } }));
  }

  sendError(status: StatusOptions): void {
    this.#send(JSON.stringify({ type: "ERROR", object: statusObject(status) }));
  }

  /** Sends a line as it is, past everything that is held back. */
  sendNow(line: string): void {
    this.#options.body.write(`${line}\n`);
  }

  /** Holds events back until {@link WatchStream.resume}. */
  pause(): void {
    this.#held ??= [];
  }

  resume(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const line of held) this.#send(line);
  }

  /** Ends it as the server does when its time is over. */
  end(): void {
    this.close();
    this.#options.body.end();
  }

  /** Ends it without a proper end of the body. */
  cut(): void {
    this.close();
    this.#options.body.cut();
  }

  /** Leaves the connection open and says nothing more. */
  stall(): void {
    this.close();
    this.#options.body.stall();
  }

  /** Stops following the store. */
  close(): void {
    this.#isOver = true;
    clearInterval(this.#bookmarks);
    this.#unsubscribe();
  }

  #onChange({ plural, before, after, version }: StoredChange): void {
    if (plural !== this.plural) return;
    const { isSelected } = this.#options;
    const was = before !== undefined && isSelected(before.object);
    const is = after !== undefined && isSelected(after.object);
    if (is) this.#sendObject(was ? "MODIFIED" : "ADDED", after);
    else if (was) this.#sendObject("DELETED", atVersion(before, version));
  }

  #sendObject(type: "ADDED" | "MODIFIED" | "DELETED", { json }: StoredVersion): void {
    const { kind, apiVersion } = this.#options.type;
    const head = `{"kind":${JSON.stringify(kind)},"apiVersion":${JSON.stringify(apiVersion)},`;
    this.#send(`{"type":"${type}","object":${head}${json.slice(1)}}`);
  }

  #send(line: string): void {
    if (this.#isOver) return;
    if (this.#held !== undefined) this.#held.push(line);
    else this.#options.body.write(`${line}\n`);
  }
}

/** A deleted object carries the version of its deletion. */
function atVersion({ object }: StoredVersion, version: number): StoredVersion {
  const deleted = { ...object, metadata: { ...object.metadata, resourceVersion: String(version) } };
  return { object: deleted, json: JSON.stringify(deleted) };
}
