/** One watch request: its events, decoded and put into the cache as they come. */
import { giveTurn, isTurnDue } from "../../../async/turns.ts";
import type { ObjectKind } from "../../object-source.ts";
import { isJsonObject, type JsonObject } from "../../projection/fields.ts";
import { describeValue } from "../../projection/findings.ts";
import { ApiError } from "../connection/api-error.ts";
import { statusError } from "../connection/status.ts";
import type { Transport } from "../connection/transport.ts";
import type { BodyFormat } from "../formats/body-format.ts";
import { FormatError, type Item } from "../formats/pieces.ts";
import { formatOrThrow, pathOf } from "./list-reader.ts";
import type { ObjectCache } from "./object-cache.ts";
import type { WatchedResource } from "./resources.ts";

const INITIAL_EVENTS_END = "k8s.io/initial-events-end";

interface WatchOptions<K extends ObjectKind> {
  readonly resource: WatchedResource<K>;
  readonly transport: Pick<Transport, "host" | "send">;
  readonly cache: ObjectCache<K>;
  readonly query: Readonly<Record<string, string>>;
  /** The header `Accept`. */
  readonly accept: string;
  /** The longest time until the server accepts the watch. */
  readonly answerMs: number;
  /** Something has come. */
  readonly onProgress: () => void;
  /** The watch begins with every existing object; called after the last of them. */
  readonly onInitialEnd?: () => void;
  /** Everything up to this version has been delivered. */
  readonly onVersion: (resourceVersion: string) => void;
  /** The server has accepted the watch. */
  readonly onOpen: (format: BodyFormat) => void;
}

/**
 * Follows a watch until the server ends it.
 *
 * @returns the number of events.
 * @throws ApiError when it ends in any other way; `garbage` when an event was lost because it could not be read.
 */
export async function followWatch<K extends ObjectKind>(
  options: WatchOptions<K>,
  signal: AbortSignal,
): Promise<number> {
  const { resource, transport, query, accept, answerMs } = options;
  const path = pathOf(resource, { ...query, watch: "true", allowWatchBookmarks: "true" });
  const request = { verb: "watch", resource: resource.plural, method: "GET", path, accept, answerMs } as const;
  const response = await transport.send(request, signal);
  const events = new WatchEvents(options);
  const format = formatOrThrow(response.contentType, (detail) => events.garbage(detail), resource.keepsPods);
  options.onOpen(format);
  // An event that the end cuts off has not moved the version, so the next watch brings it again.
  const body = format.events((event) => events.take(event));
  try {
    for await (const chunk of response.body) {
      options.onProgress();
      body.push(chunk);
      // A connection brings megabytes at a stretch, and a server may never stop.
      if (isTurnDue()) await giveTurn();
    }
  } catch (error) {
    throw error instanceof FormatError ? events.garbage(error.message) : error;
  }
  if (body.pendingBytes > 0) throw events.cutOff(body.pendingBytes);
  return events.count;
}

class WatchEvents<K extends ObjectKind> {
  readonly #options: WatchOptions<K>;
  /** The list, that the watch begins with, is not whole yet. */
  isInitial: boolean;
  count = 0;

  constructor(options: WatchOptions<K>) {
    this.#options = options;
    this.isInitial = options.onInitialEnd !== undefined;
  }

  take({ value: event, problem }: Item): void {
    this.count++;
    if (!isJsonObject(event)) throw this.garbage(`an event is ${problem ?? `no object: ${describeValue(event)}`}`);
    const { cache } = this.#options;
    switch (event.type) {
      case "ADDED":
      case "MODIFIED":
        if (problem !== undefined) this.#note(cache.unreadable(event.object, problem), event);
        else if (event.type === "ADDED" && this.isInitial) this.#note(this.#listed(event.object), event);
        else this.#note(cache.changed(event.object), event);
        break;
      case "DELETED":
        this.#note(cache.deleted(event.object), event);
        break;
      case "BOOKMARK":
        this.#takeBookmark(event.object);
        break;
      case "ERROR":
        throw statusError(this.#request(), isJsonObject(event.object) ? event.object : {}, 500);
      default:
        throw this.garbage(`an event of the unknown type ${describeValue(event.type)}`);
    }
  }

  /** The answer ended in the middle of an event. Initial events may then still come as a list. */
  cutOff(bytes: number): ApiError {
    const { host } = this.#options.transport;
    const detail = `${host}: the answer ends in the middle of an event, after ${bytes} bytes of it`;
    return new ApiError(this.isInitial ? "garbage" : "unreachable", { request: this.#request(), detail });
  }

  garbage(detail: string): ApiError {
    return new ApiError("garbage", { request: this.#request(), detail: `${this.#options.transport.host}: ${detail}` });
  }

  #request(): string {
    return `watch ${this.#options.resource.plural}`;
  }

  #listed(raw: unknown): { readonly resourceVersion: string } | undefined {
    // Versions inside of the initial events are no place to resume from.
    return this.#options.cache.listed(raw) ? { resourceVersion: "" } : undefined;
  }

  #note(identity: { readonly resourceVersion: string } | undefined, event: JsonObject): void {
    if (identity === undefined) {
      throw this.garbage(`the object of a ${String(event.type)} event has no name: ${describeValue(event.object)}`);
    }
    this.#advance(identity.resourceVersion);
  }

  #takeBookmark(object: unknown): void {
    const metadata = isJsonObject(object) && isJsonObject(object.metadata) ? object.metadata : {};
    const version = typeof metadata.resourceVersion === "string" ? metadata.resourceVersion : "";
    const isEnd = isJsonObject(metadata.annotations) && metadata.annotations[INITIAL_EVENTS_END] === "true";
    if (isEnd && this.isInitial) {
      if (version === "") throw this.garbage("the bookmark after the initial events has no resourceVersion");
      this.isInitial = false;
      this.#options.onInitialEnd?.();
    }
    this.#advance(version);
  }

  #advance(resourceVersion: string): void {
    if (resourceVersion !== "" && !this.isInitial) this.#options.onVersion(resourceVersion);
  }
}
