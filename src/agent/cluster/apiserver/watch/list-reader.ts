/** One list request: a page of objects, delivered one by one, in protobuf while it arrives. */
import { giveTurn, isTurnDue } from "../../../../async/turns.ts";
import type { ObjectKind } from "../../../../model/object-source.ts";
import { isJsonObject } from "../../../../model/projection/fields.ts";
import { ApiError, type ApiErrorCode } from "../connection/api-error.ts";
import type { ApiTransport } from "../connection/transport.ts";
import { type BodyFormat, formatOf } from "../formats/body-format.ts";
import { CutError, FormatError } from "../formats/pieces.ts";
import type { ObjectCache } from "./object-cache.ts";
import type { WatchedResource } from "./resources.ts";

interface PageHead {
  readonly resourceVersion: string;
  /** Token of the next page; empty for the last page. */
  readonly continueToken: string;
}

/** What is listed or watched. */
export type Listed = Pick<WatchedResource, "plural" | "path" | "selectors" | "keepsPods">;

/** Options of a request whose response goes into the cache. */
export interface ReadOptions<K extends ObjectKind> {
  readonly resource: Listed;
  readonly transport: Pick<ApiTransport, "host" | "send">;
  readonly cache: Pick<ObjectCache<K>, "take">;
  readonly query: Readonly<Record<string, string>>;
  readonly accept: string;
  /** Called when the server starts a response of an acceptable type. */
  readonly onOpen?: (format: BodyFormat) => void;
  readonly onProgress?: () => void;
}

interface ListPageOptions<K extends ObjectKind> extends ReadOptions<K> {
  readonly idleMs: number;
}

/**
 * Reads a page into the cache, as part of a list that the caller began.
 *
 * @throws ApiError: `unreachable` if the response is cut off; `garbage` if it is not a list or contains an item that
 * cannot be identified, because then a missing object may not be deleted.
 */
export async function readListPage<K extends ObjectKind>(
  { resource, transport, cache, query, accept, idleMs, onOpen, onProgress }: ListPageOptions<K>,
  signal: AbortSignal,
): Promise<PageHead> {
  const failure = failing(`list ${resource.plural}`, transport);
  const garbage = (detail: string): ApiError => failure("garbage", detail);
  const path = pathOf(resource, query);
  const response = await transport.send(
    { verb: "list", resource: resource.plural, method: "GET", path, accept, idleMs },
    signal,
  );
  const format = formatOrThrow(response.contentType, garbage, resource.keepsPods);
  onOpen?.(format);
  let strangers = 0;
  const take = (item: unknown): void => {
    if (cache.take("listed", item) === undefined) strangers++;
  };
  const list = format.list(take);
  try {
    for await (const chunk of response.body) {
      onProgress?.();
      list.push(chunk);
      if (isTurnDue()) await giveTurn();
    }
    const { items, ...rest } = list.end();
    const head = readHead(rest);
    for (const item of head !== undefined && Array.isArray(items) ? items : []) {
      take(item);
      if (isTurnDue()) await giveTurn();
    }
    if (head === undefined) throw garbage("the response is not a list: is this an API server?");
    if (strangers > 0) throw garbage(`${strangers} items of the list are not objects with a name`);
    return head;
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    throw failure(error instanceof CutError ? "unreachable" : "garbage", error.message, error);
  }
}

/** Creates the errors of a response. */
export function failing(request: string, { host }: Pick<ApiTransport, "host">) {
  return (code: ApiErrorCode, detail: string, cause?: unknown): ApiError =>
    new ApiError(code, { request, detail: `${host}: ${detail}` }, { cause });
}

/** Path and query of a request for a resource; omits empty parameters. */
export function pathOf(resource: Listed, query: Readonly<Record<string, string>>): string {
  const given = Object.entries({ ...resource.selectors, ...query }).filter(([, value]) => value !== "");
  return given.length === 0 ? resource.path : `${resource.path}?${new URLSearchParams(given)}`;
}

/** @throws the error that `garbage` creates if no API server sends this content type. */
export function formatOrThrow(
  contentType: string,
  garbage: (detail: string) => ApiError,
  keepsPods?: boolean,
): BodyFormat {
  const format = formatOf(contentType, keepsPods);
  if (format !== undefined) return format;
  throw garbage(`the answer is ${JSON.stringify(contentType.slice(0, 60))} and not JSON: is this an API server?`);
}

function readHead(list: Readonly<Record<string, unknown>>): PageHead | undefined {
  if (typeof list.kind !== "string" || !list.kind.endsWith("List") || !isJsonObject(list.metadata)) return undefined;
  const { resourceVersion, continue: token } = list.metadata;
  if (typeof resourceVersion !== "string" || resourceVersion === "") return undefined;
  return { resourceVersion, continueToken: typeof token === "string" ? token : "" };
}
