/** One open watch of a client at the test API server. */
import type { FaultyBody } from "./faults.ts";
import type { ObjectStore, StoredChange, StoredVersion } from "./object-store.ts";
import type { Plural, ResourceType } from "./resource-types.ts";
import type { Predicate } from "./selectors.ts";
import { type StatusOptions, statusObject } from "./status-object.ts";
import type { WireFormat } from "./wire-format.ts";

export interface WatchStreamOptions {
  readonly store: ObjectStore;
  readonly type: ResourceType & { readonly plural: Plural };
  readonly isSelected: Predicate;
  readonly body: FaultyBody;
  readonly format: WireFormat;
  readonly allowsBookmarks: boolean;
}

/** How often a watch gets a bookmark. */
const BOOKMARK_EVERY_MS = 60_000;

export class WatchStream {
  readonly #options: WatchStreamOptions;
  readonly #unsubscribe: () => void;
  readonly #bookmarks: NodeJS.Timeout;
  /** Events held back while paused. */
  #held: (string | Buffer)[] | undefined;
  #isOver = false;

  constructor(options: WatchStreamOptions) {
    this.#options = options;
    this.#unsubscribe = options.store.subscribe((change) => this.#onChange(change));
    this.#bookmarks = setInterval(() => this.sendBookmark(), BOOKMARK_EVERY_MS);
  }

  get format(): WireFormat {
    return this.#options.format;
  }

  get plural(): Plural {
    return this.#options.type.plural;
  }

  /** Sends all existing objects as additions. */
  sendInitial(): void {
    const { body, store, isSelected } = this.#options;
    body.inOnePiece(() => {
      for (const version of store.objects(this.plural).values()) {
        if (isSelected(version.object)) this.#sendObject("ADDED", version);
      }
    });
  }

  /** Sends the changes after a version; the caller has checked that the history contains them. */
  sendSince(changes: readonly StoredChange[]): void {
    for (const change of changes) this.#onChange(change);
  }

  /** Sends the watch's current version. A real server does so only once the resource has changed. */
  sendBookmark(): void {
    if (this.#options.store.hasChanged(this.plural)) this.#sendBookmark();
  }

  /** Sends the bookmark that ends the initial events. */
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
    this.#send(this.#event("BOOKMARK", { metadata }));
  }

  sendError(status: StatusOptions): void {
    const object = statusObject(status);
    this.#send(this.#options.format.event("ERROR", object, versionOf(object)));
  }

  /** Sends an event ahead of those held back. */
  sendNow(type: string, object: object): void {
    this.#options.body.write(this.#event(type, object));
  }

  /** Sends raw bytes ahead of events held back. */
  sendBytes(content: string | Buffer): void {
    this.#options.body.write(content);
  }

  /** Holds events back until {@link WatchStream.resume}. */
  pause(): void {
    this.#held ??= [];
  }

  resume(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const event of held) this.#send(event);
  }

  /** Ends the watch as the server does after its time limit. */
  end(): void {
    this.close();
    this.#options.body.end();
  }

  /** Cuts the watch without a proper end of the body. */
  cut(): void {
    this.close();
    this.#options.body.cut();
  }

  /** Leaves the connection open and sends nothing more. */
  stall(): void {
    this.close();
    this.#options.body.stall();
  }

  /** Unsubscribes from the store. */
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
    else if (was) this.#sendObject("DELETED", atVersion(this.#options.store, before, version));
  }

  #sendObject(type: "ADDED" | "MODIFIED" | "DELETED", version: StoredVersion): void {
    if (!this.#isOver) this.#send(this.#options.format.event(type, this.#options.type, version));
  }

  #event(type: string, object: object): string | Buffer {
    return this.#options.format.event(type, this.#options.type, versionOf(object));
  }

  #send(event: string | Buffer): void {
    if (this.#isOver) return;
    if (this.#held !== undefined) this.#held.push(event);
    else this.#options.body.write(event);
  }
}

/** An object that was never stored. */
function versionOf(object: object): StoredVersion {
  return { object: object as StoredVersion["object"], json: JSON.stringify(object) };
}

/** A deleted object has the version of its deletion. */
function atVersion(store: ObjectStore, { object }: StoredVersion, version: number): StoredVersion {
  const deleted = { ...object, metadata: { ...object.metadata, resourceVersion: String(version) } };
  return { object: deleted, json: store.jsonOf(deleted) };
}
