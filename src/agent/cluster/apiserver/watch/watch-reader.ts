/** One watch request: decodes its events and applies them to the cache as they arrive. */
import { giveTurn, isTurnDue } from "../../../../async/turns.ts";
import type { ObjectKind } from "../../../../model/object-source.ts";
import { isJsonObject } from "../../../../model/projection/fields.ts";
import { describeValue } from "../../../../model/projection/findings.ts";
import type { ApiError } from "../connection/api-error.ts";
import { statusError } from "../connection/status.ts";
import { FormatError } from "../formats/pieces.ts";
import { failing, formatOrThrow, pathOf, type ReadOptions } from "./list-reader.ts";

const INITIAL_EVENTS_END = "k8s.io/initial-events-end";

interface WatchOptions<K extends ObjectKind> extends ReadOptions<K> {
  /** The longest wait until the server accepts the watch. */
  readonly answerMs: number;
  /** Called after the last initial event, for watches that start with every existing object. */
  readonly onInitialEnd?: (() => void) | undefined;
  /** Called when everything up to this version has been delivered. */
  readonly onVersion: (resourceVersion: string) => void;
}

/**
 * Follows a watch until the server ends it.
 *
 * @returns the number of events.
 * @throws ApiError if it ends in any other way; `garbage` if an event was lost because it could not be read.
 */
export async function followWatch<K extends ObjectKind>(
  { resource, transport, cache, query, accept, answerMs, ...told }: WatchOptions<K>,
  signal: AbortSignal,
): Promise<number> {
  const title = `watch ${resource.plural}`;
  const failure = failing(title, transport);
  const garbage = (detail: string): ApiError => failure("garbage", detail);
  const path = pathOf(resource, { ...query, watch: "true", allowWatchBookmarks: "true" });
  const request = { verb: "watch", resource: resource.plural, method: "GET", path, accept, answerMs } as const;
  const response = await transport.send(request, signal);
  const format = formatOrThrow(response.contentType, garbage, resource.keepsPods);
  told.onOpen?.(format);
  /** The initial events are not complete yet. */
  let isInitial = told.onInitialEnd !== undefined;
  let count = 0;

  const takeObject = (type: string, object: unknown): string => {
    const how = type === "DELETED" ? "deleted" : type === "ADDED" && isInitial ? "listed" : "changed";
    const version = cache.take(how, object);
    if (version !== undefined) return version;
    throw garbage(`the object of a ${type} event has no name: ${describeValue(object)}`);
  };
  const takeBookmark = (object: unknown): string => {
    const metadata = isJsonObject(object) && isJsonObject(object.metadata) ? object.metadata : {};
    const version = typeof metadata.resourceVersion === "string" ? metadata.resourceVersion : "";
    const isEnd = isJsonObject(metadata.annotations) && metadata.annotations[INITIAL_EVENTS_END] === "true";
    if (isEnd && isInitial) {
      if (version === "") throw garbage("the bookmark after the initial events has no resourceVersion");
      isInitial = false;
      told.onInitialEnd?.();
    }
    return version;
  };
  const take = (event: unknown): void => {
    count++;
    if (!isJsonObject(event)) throw garbage(`an event is not an object: ${describeValue(event)}`);
    const { type, object } = event;
    let version: string;
    if (type === "ADDED" || type === "MODIFIED" || type === "DELETED") version = takeObject(type, object);
    else if (type === "BOOKMARK") version = takeBookmark(object);
    else if (type === "ERROR") throw statusError(title, isJsonObject(object) ? object : {}, 500);
    else throw garbage(`an event of the unknown type ${describeValue(type)}`);
    // A watch cannot resume from the versions of initial events.
    if (version !== "" && !isInitial) told.onVersion(version);
  };

  const body = format.events(take);
  try {
    for await (const chunk of response.body) {
      told.onProgress?.();
      body.push(chunk);
      // A connection may deliver megabytes at a stretch, and a server may never stop.
      if (isTurnDue()) await giveTurn();
    }
  } catch (error) {
    throw error instanceof FormatError ? garbage(error.message) : error;
  }
  if (body.pendingBytes === 0) return count;
  // A truncated event has not advanced the version, so the next watch or list delivers it again.
  const detail = `the response ends in the middle of an event, after ${body.pendingBytes} bytes of it`;
  throw failure(isInitial ? "garbage" : "unreachable", detail);
}
